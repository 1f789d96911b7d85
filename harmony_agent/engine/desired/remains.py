"""Remains of a device that lost its memory: listed until an operator decides.

The ledger is gone, so the device takes nothing as its own. It lists the resources that
``actual-state`` told last, and the objects that carry its marks, as `LedgerLost`. A manifest with
`remains` takes them back into the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from pydantic import ValidationError

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.reconciler import Mark
from harmony_agent.core.resources import Desired, Facts, Key, OwnershipRecord
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.engine.state.lost import LOST, MESSAGE
from scores.base import Score
from scores.canonical import canonical, digest
from scores.manifest import WireManifest
from scores.status import (
    MAX_NAMES,
    ContainerDetail,
    DeploymentStatus,
    FileDetail,
    ResourceStatus,
    SessionDetail,
    UnitDetail,
)

log = logging.getLogger(__name__)


class Remains:
    """Finds what remains of an earlier life, and takes it back where that is decided."""

    def __init__(
        self, state: DeviceState, kinds: Mapping[str, KindInstance], *, fresh: bool
    ) -> None:
        """`fresh`: the ledger was empty at this start, so marks on the device may be of an earlier
        life.
        """
        self._state = state
        self._kinds = kinds
        self.fresh = fresh
        self._recalled: set[str] = set()
        self._seen: dict[str, Sequence[Mark]] = {}

    def recall(self, deployment: str, data: bytes | None) -> None:
        """Take in the status of a deployment that an earlier life wrote into ``actual-state``."""
        if deployment in self._recalled:
            return
        self._recalled.add(deployment)
        try:
            told = DeploymentStatus.model_validate_json(data or b"{}")
        except ValidationError:
            return  # nothing, or somebody else's bytes
        entry = self._state.deployments.get(deployment)
        stored = entry.stored if entry is not None else None
        refused = entry.refused if entry is not None else None
        newest = max(one.generation for one in (stored, refused) if one) if stored else 0
        newer = (
            stored is not None
            and told.lineage == stored.lineage
            and (told.generation or 0) > newest
        )
        forgotten = stored is None or newer
        found = {
            Key.parse(key): _told(status)
            for key, status in told.resources.items()
            if status.reason == LOST or (forgotten and self._unknown(Key.parse(key), status))
        }
        if found and told.phase != "Removed":
            self._lost(deployment, found)

    def _unknown(self, key: Key, status: ResourceStatus) -> bool:
        """Tell if it may stand there though the ledger doesn't know it."""
        record = self._state.records.get(key)
        return _stood(key, status) and (record is None or record.spec_digest != status.spec_digest)

    def recalled(self, deployment: str) -> bool:
        """Tell if that was taken in."""
        return deployment in self._recalled

    async def look(self, deployment: str) -> None:
        """Take in what carries a deployment's marks, where nothing is remembered."""
        if not self.fresh:
            return
        for mark in await self.marks():
            if mark.deployment == deployment and not self._named(mark.key):
                self._lost(deployment, {mark.key: self._status(mark)})

    async def marks(self) -> list[Mark]:
        """All that carries this device's marks; of a kind that can't be asked now, what it told
        last.
        """
        found: list[Mark] = []
        for kind in self._kinds.values():
            try:
                self._seen[kind.kind] = await kind.marked()
            except ResourceError as error:
                log.debug("cannot look for the marks of %s: %s", kind.kind, error)
            found += self._seen.get(kind.kind, [])
        return found

    async def unmanaged(self) -> list[str]:
        """The names of what carries this device's marks and is nobody's, in order; at most
        `MAX_NAMES`.
        """
        return sorted({mark.name[:256] for mark in await self.marks() if not mark.known})[
            :MAX_NAMES
        ]

    def _named(self, key: Key) -> bool:
        return key in self._state.records or key in self._state.desired

    def _lost(self, deployment: str, found: Mapping[Key, ResourceStatus]) -> None:
        new = {
            key: status
            for key, status in found.items()
            if key not in self._state.lost.of(deployment)
        }
        if new:
            shown = ", ".join(sorted(map(str, new))[:10])
            log.warning(
                "%s: the memory of %d resources was lost: %s",
                deployment,
                len(new),
                shown,
                extra={"deployment": deployment, "reason": LOST},
            )
            self._state.lose(deployment, new)

    def _status(self, mark: Mark) -> ResourceStatus:
        """A status for what only its marks tell of: which spec it was made from is not known."""
        return ResourceStatus(
            phase="Unknown",
            reason=LOST,
            message=MESSAGE,
            generation=1,
            since=self._state.now(),
            spec_digest=_unknown_spec(mark),
        )

    # -- the decision

    async def take_back(self, manifest: WireManifest) -> set[Key]:
        """Record as ours what the manifest's `remains` name, durably; returns the keys.

        A Score of the manifest names what was made from the very same Score. What isn't named stays
        as it is and is nobody's. Raises ResourceError.
        """
        deployment = manifest.deployment
        lost = dict(self._state.lost.of(deployment))
        if manifest.remains is None or not lost:
            return set()
        marks = {mark.key: mark for mark in await self.marks() if mark.deployment == deployment}
        for key, score, told in _decided((*manifest.remains, *manifest.scores), lost, marks):
            if key.kind in self._kinds:
                await self._take(key, score, told, deployment, marks.get(key))
        decided = {key for key in lost if key.kind in self._kinds}
        self._state.lost.drop(deployment, decided)
        return decided & self._state.records.keys()

    async def _take(
        self, key: Key, score: Score, told: ResourceStatus, deployment: str, mark: Mark | None
    ) -> None:
        """Record one, with its claims beside those of what the name has become since."""
        kind, old = self._kinds[key.kind], self._state.records.get(key)
        desired: Desired[Score] = Desired(score, score.spec_digest(), told.generation, deployment)
        claims = kind.claims(score) | (old.claims if old is not None else frozenset())
        bare = _record(
            desired,
            claims,
            old.facts if old is not None else mark.facts if mark is not None else {},
        )
        with self._state.records.taken_back(bare):
            facts = kind.facts(desired, bare, await kind.observe(key.name))
        await self._state.records.write(replace(bare, facts=dict(facts)))


def _record(desired: Desired[Score], claims: frozenset[str], facts: Facts) -> OwnershipRecord:
    """Make the record of something that had converged: what stands there now is ours."""
    spec = desired.spec
    return OwnershipRecord(
        kind=spec.kind,
        name=spec.name,
        deployment=desired.deployment,
        spec_digest=desired.digest,
        generation=desired.generation,
        on_remove=spec.on_remove,
        claims=claims,
        applied=desired.version,
        facts=facts,
        needs=desired.needs,
    )


def _unknown_spec(mark: Mark) -> str:
    """A digest that no spec has."""
    return digest(canonical([mark.deployment, *mark.key]))


def _decided(
    scores: Iterable[Score], lost: Mapping[Key, ResourceStatus], marks: Mapping[Key, Mark]
) -> Iterable[tuple[Key, Score, ResourceStatus]]:
    """List each Score from which a remain was made: the told digest is the same, or it has marks."""
    for score in scores:
        key = Key(score.kind, score.name)
        told = lost.get(key)
        if told is not None and (told.spec_digest == score.spec_digest() or key in marks):
            yield key, score, told


def _told(status: ResourceStatus) -> ResourceStatus:
    """The status as `LedgerLost`."""
    return status.model_copy(
        update={"phase": "Unknown", "reason": LOST, "message": MESSAGE, "drift": None}
    )


def _stood(key: Key, status: ResourceStatus) -> bool:
    """Tell if something of it may have stood on the device as the agent's own when this was
    told.
    """
    if (
        key.kind == "SystemUpgrade"
        or status.reason == "OwnershipConflict"
        or status.phase == "Pending"
    ):
        return False
    match status.status:
        case FileDetail() | ContainerDetail() | SessionDetail():
            return status.status.state != "Absent"
        case UnitDetail():
            return status.status.load_state != "not-found"
    return True
