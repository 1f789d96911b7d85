"""Volume: the reconciler that the engine drives; it hands each question to `observe`, `plan` or
`apply`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.volume.actions import VolumeAction
from harmony_agent.kinds.volume.apply import Applier
from harmony_agent.kinds.volume.facts import VolumeFacts, read, write
from harmony_agent.kinds.volume.observe import Observer
from harmony_agent.kinds.volume.plan import VolumePlan, plan
from harmony_agent.topology.volumes import Volumes, VolumeState
from scores.manifest import FieldError
from scores.names import format_time
from scores.status import VolumeDetail
from scores.volume import Volume


class VolumeReconciler:
    """Volumes of one device's container engine."""

    kind = "Volume"
    spec_type = Volume

    def __init__(self, volumes: Volumes, store: KindView[Volume], *, device: str) -> None:
        self._volumes, self._device = volumes, device
        self._observer = Observer(volumes, store)
        self._applier = Applier(volumes, store, device)

    def admit(self, spec: Volume) -> Iterable[FieldError]:
        """Nothing: the configuration forbids no volume."""
        del spec
        return ()

    def claims(self, spec: Volume) -> frozenset[str]:
        """Its name."""
        return frozenset({f"volume:{spec.name}"})

    async def relist(self) -> Mapping[str, VolumeState]:
        """All that is wanted or owned and exists."""
        return await self._observer.relist()

    async def observe(self, name: str) -> VolumeState | None:
        """One, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[Volume] | None,
        record: OwnershipRecord | None,
        observed: VolumeState | None,
    ) -> VolumePlan:
        """Plan the next actions."""
        return plan(name, desired, record, observed, self._device)

    async def apply(self, action: VolumeAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[Volume],
        record: OwnershipRecord | None,
        observed: VolumeState | None,
    ) -> Facts:
        """Collect the facts to record at a claim. What is made anew after a loss is ours as well."""
        del desired
        return write(VolumeFacts(made=observed is None or read(record).made))

    def detail(self, record: OwnershipRecord | None, observed: VolumeState | None) -> VolumeDetail:
        """The typed status."""
        del record
        if observed is None:
            return VolumeDetail(state="Absent")
        since = None if observed.created is None else format_time(observed.created)
        return VolumeDetail(state="Present", driver=observed.driver, since=since)

    async def close(self) -> None:
        """Let go of podman; volumes stay."""
        await self._volumes.close()
