"""SystemUpgrade: the reconciler that the engine drives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_agent.core.actions import Plan
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.system_upgrade.actions import RequestUpgrade
from harmony_agent.kinds.system_upgrade.apply import Applier
from harmony_agent.kinds.system_upgrade.facts import UpgradeFacts, read, write
from harmony_agent.kinds.system_upgrade.observe import Observer
from harmony_agent.kinds.system_upgrade.observed import Observed
from harmony_agent.kinds.system_upgrade.plan import plan
from harmony_agent.topology import Clock
from harmony_agent.topology.updater import Updater
from scores.manifest import FieldError
from scores.status import UpgradeDetail
from scores.system_upgrade import SystemUpgrade


class SystemUpgradeReconciler:
    """Implements `core.reconciler.Reconciler`."""

    kind = "SystemUpgrade"
    spec_type = SystemUpgrade

    def __init__(
        self, updater: Updater, store: KindView[SystemUpgrade], clock: Clock, device: str
    ) -> None:
        self._device = device
        self._observer = Observer(updater, store, clock)
        self._applier = Applier(updater, store)

    def admit(self, spec: SystemUpgrade) -> Iterable[FieldError]:
        """Nothing of a request can be forbidden by configuration but the kind itself."""
        return ()

    def claims(self, spec: SystemUpgrade) -> frozenset[str]:
        """The attempt: two resources can't be the same one."""
        return frozenset({f"attempt:{spec.attempt_id}"})

    async def relist(self) -> Mapping[str, Observed]:
        """Ask for each that hasn't ended."""
        return await self._observer.relist()

    async def observe(self, name: str) -> Observed | None:
        """The updater's answer; None if it has never known the attempt."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[SystemUpgrade] | None,
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> Plan[RequestUpgrade]:
        """Ask once, then wait for the end."""
        return plan(name, desired, observed, self._device)

    async def apply(self, action: RequestUpgrade) -> None:
        """Take the step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[SystemUpgrade],
        record: OwnershipRecord | None,
        observed: Observed | None,
    ) -> Facts:
        """The attempt, so that it is followed to its end without the Score."""
        spec, known = desired.spec, read(record).known
        known = known if known == spec.attempt_id else ""
        return write(UpgradeFacts(spec.attempt_id, spec.run_uid, known))

    def detail(
        self, record: OwnershipRecord | None, observed: Observed | None
    ) -> UpgradeDetail | None:
        """The updater's own words."""
        attempt = observed.attempt if observed is not None else None
        return attempt.detail if attempt is not None else None
