"""What the engine knows, in memory: manifests that are enforced, what each resource is to be, what is owned, how it is.

Decides nothing. The ledger's records are mirrored here; what a crash may lose (that a spec was applied) is written a
little later by `flush`, all else before it is acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from harmony_agent.core.admission import Keep, Last
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.reconcile import Desired, Key, Record
from harmony_agent.core.status import Enforced, Outcome, resource_status
from harmony_agent.engine.holders import Holders
from harmony_agent.engine.store import KindStore
from harmony_agent.engine.together import Together
from harmony_agent.engine.turns import Turns
from harmony_agent.engine.wanted import desired_of
from harmony_agent.topology.control import Ledger, Stored
from scores.manifest import WireManifest
from scores.status import SETTLED, ResourcePhase, ResourceStatus


@dataclass(slots=True)
class Deployment:
    """One deployment: the manifest that is enforced, and what was said of a newer one that is not."""

    name: str
    stored: Stored | None = None
    removed: bool = False
    kept: Keep | None = None
    keys: set[Key] = field(default_factory=set)
    floor: Last | None = None
    """where nothing is enforced: what an earlier life of this device had accepted; no manifest goes back behind it"""

    @property
    def last(self) -> Last | None:
        """What a newcomer is judged by."""
        if self.stored is None:
            return self.floor
        return Last(self.stored.lineage, self.stored.generation, self.stored.digest)

    @property
    def enforced(self) -> Enforced | None:
        """For the fold: what a status shows never goes back, also where the device's own memory was lost."""
        if self.stored is None:
            return Enforced(self.floor.lineage, self.floor.generation, self.floor.digest, False) if self.floor else None
        return Enforced(self.stored.lineage, self.stored.generation, self.stored.digest, self.removed)


class Book:
    """The engine's memory. Only the event loop's thread touches it."""

    def __init__(self, ledger: Ledger, changed: Callable[[str], None], wire_now: Callable[[], str]) -> None:
        """`changed` is called with a deployment whose status may differ now."""
        self.ledger = ledger
        self._wire_now = wire_now
        self.deployments: dict[str, Deployment] = {}
        self.desired: dict[Key, Desired[Any]] = {}
        self.records: dict[Key, Record] = {record.key: record for record in ledger.records()}
        self.statuses: dict[Key, ResourceStatus] = {}
        self.turns = Turns()
        self.holders = Holders(self.records.values())
        self.enforced = 0
        """another one whenever `desired` changed"""
        self._unwanted: dict[Key, None] = dict.fromkeys(self.records)
        """keys of records that no manifest wants (or none yet, after a start): mostly none, and often asked for"""
        self.revision = 0
        """another one whenever `desired` or `records` changed"""
        self._phased = 0
        """another one whenever the phase of a resource changed"""
        self._phases: dict[str, tuple[tuple[int, int], set[ResourcePhase]]] = {}
        self._stores: dict[str, KindStore] = {}
        self._changed = changed
        self._unwritten: set[Key] = set()
        self._writing = anyio.Lock()
        """held from a write to the disk until memory says the same: no flush or rebuild may bring back what is older"""
        self._puts: Together[Sequence[Record]] = Together(self._put)
        self._forgets: Together[Key] = Together(self._forget)
        self.on_release: Callable[[], None] = lambda: None
        """something isn't wanted or ours any more: another deployment may have it"""

    def store(self, kind: str) -> KindStore:
        """What the reconciler of `kind` may see."""
        return self._stores.setdefault(kind, KindStore(self, kind))

    def deployment(self, name: str) -> Deployment:
        """The deployment, made if it is new."""
        return self.deployments.setdefault(name, Deployment(name))

    # -- manifests

    def enforce(self, stored: Stored, manifest: WireManifest, digests: Mapping[str, str] | None = None) -> set[Key]:
        """Hold the device to a manifest that was persisted; returns the keys to work on. `digests` as `digests_of`."""
        deployment = self.deployment(stored.deployment)
        before = {key: self.desired[key] for key in deployment.keys}
        wanted = {
            key: before[key] if key in before and before[key].version == desired.version else desired
            for key, desired in desired_of(manifest, stored.generations, digests).items()
        }
        for key in deployment.keys - wanted.keys():
            del self.desired[key]
        self.desired.update(wanted)
        self.revision += 1
        self.enforced += 1
        for key in wanted:
            self._unwanted.pop(key, None)
        self._unwanted |= {key: None for key in before if key not in wanted and key in self.records}
        owned = {key for key, record in self.records.items() if record.deployment == stored.deployment}
        deployment.stored, deployment.removed, deployment.kept = stored, manifest.removed, None
        deployment.keys = set(wanted)
        self._follow_on_remove(wanted)
        self._changed(stored.deployment)
        stale = (owned | before.keys()) - wanted.keys()
        changed = {key for key, desired in wanted.items() if before.get(key) is not desired}
        self._not_yet(stale, changed)
        if before.keys() - wanted.keys():
            self.on_release()
        return stale | changed

    def _follow_on_remove(self, wanted: Mapping[Key, Desired[Any]]) -> None:
        """What becomes of it is said by the last manifest that had it, though no pass may have come to it by then."""
        for key, desired in wanted.items():
            record = self.records.get(key)
            if record is not None and record.on_remove != desired.spec.on_remove:
                self.write_later(replace(record, on_remove=desired.spec.on_remove))

    def _not_yet(self, stale: set[Key], changed: set[Key]) -> None:
        """Until the first pass over it, a resource that changed is neither settled nor gone."""
        now = self._wire_now()
        self._phased += 1
        for key in changed:
            desired, old = self.desired[key], self.statuses.get(key)
            self.statuses[key] = resource_status(
                old, Outcome("Progressing", detail=old.status if old else None), desired.generation, desired.digest, now
            )
        for key in stale:
            record, old = self.records.get(key), self.statuses.pop(key, None)
            if record is not None:
                outcome = Outcome("Removing", detail=old.status if old else None)
                self.statuses[key] = resource_status(old, outcome, record.generation, record.spec_digest, now)

    def keep(self, deployment: str, kept: Keep | None) -> None:
        """Note what was said of a newer manifest; None clears it."""
        entry = self.deployment(deployment)
        if entry.kept != kept:
            entry.kept = kept
            self._changed(deployment)

    def going(self, key: Key) -> bool:
        """Whether what the ledger has under `key` is to be taken off: its deployment is known, and wants it no more."""
        record = self.records.get(key)
        if record is None or key in self.desired:
            return False
        deployment = self.deployments.get(record.deployment)
        return deployment is not None and deployment.stored is not None

    def has(self, deployment: str) -> dict[str, str]:
        """What a deployment owns or wants, with each one's `on_remove`; not what is on its way out already."""
        owned = {
            str(key): record.on_remove
            for key, record in self.records.items()
            if record.deployment == deployment and not self.going(key)
        }
        return owned | {
            str(key): desired.spec.on_remove
            for key, desired in self.desired.items()
            if desired.deployment == deployment
        }

    def leaving(self, deployment: str) -> list[Record]:
        """Records of a deployment that are on their way out."""
        return [
            self.records[key]
            for key in self._unwanted
            if self.records[key].deployment == deployment and self.going(key)
        ]

    # -- records

    async def write(self, record: Record) -> None:
        """Put a record, durably before this returns."""
        await self._puts.add((record,))

    async def write_together(self, own: Record, others: Collection[Record]) -> bool:
        """Put the record of the pass that asks, and those of other resources, in one commit.

        False: a pass over one of the others is under way, and nothing was written; ask again soon.
        """
        keys = [record.key for record in others]
        if self.turns.busy(keys):
            return False
        with self.turns.lend(keys):
            await self._puts.add((own, *others))
        return True

    async def _put(self, groups: list[Sequence[Record]]) -> None:
        records = [record for group in groups for record in group]
        async with self._writing:
            await self.ledger.put(records)
            for record in records:
                self._remember(record)
                self._unwritten.discard(record.key)

    def write_later(self, record: Record) -> None:
        """Put a record; durable at the next `flush`."""
        old = self.records.get(record.key)
        if old == record:
            return
        self._remember(record)
        self._unwritten.add(record.key)
        if old is not None and old.claims - record.claims:
            self.on_release()

    def _remember(self, record: Record) -> None:
        self.holders.change(self.records.get(record.key), record)
        self.records[record.key] = record
        self.revision += 1
        if record.key not in self.desired:
            self._unwanted[record.key] = None

    async def flush(self) -> None:
        """Make durable what `write_later` left."""
        async with self._writing:
            if not self._unwritten:
                return
            keys, self._unwritten = self._unwritten, set()
            try:
                await self.ledger.put([self.records[key] for key in keys if key in self.records])
            except ResourceError:
                self._unwritten |= keys
                raise

    async def accept(self, stored: Stored) -> None:
        """Persist a manifest, and before it what its predecessor left to be written; `enforce` it next."""
        await self.flush()
        async with self._writing:
            await self.ledger.accept(stored)
            self.deployment(stored.deployment).stored = stored

    async def rebuild(self) -> None:
        """Write the ledger anew from memory, all of it."""
        async with self._writing:
            stored = [entry.stored for entry in self.deployments.values() if entry.stored is not None]
            await self.ledger.rebuild(stored, list(self.records.values()))

    async def forget(self, key: Key) -> None:
        """Drop a record and its status."""
        record = self.records.get(key)
        if record is not None:
            await self._forgets.add(key)
        if key not in self.desired:
            self.statuses.pop(key, None)
            self._phased += 1
            if record is not None:
                self._changed(record.deployment)
        self.on_release()

    async def _forget(self, keys: list[Key]) -> None:
        async with self._writing:
            await self.ledger.forget(*keys)
            for key in keys:
                self.holders.change(self.records.pop(key, None), None)
                self.revision += 1
                self._unwanted.pop(key, None)
            self._unwritten.difference_update(keys)

    # -- statuses

    def set_status(self, key: Key, deployment: str, status: ResourceStatus) -> bool:
        """Note how a resource is; returns whether it has just settled with this spec."""
        old = self.statuses.get(key)
        if old == status:
            return False
        self.statuses[key] = status
        self._phased += old is None or old.phase != status.phase
        self._changed(deployment)
        settled = status.phase in SETTLED
        return settled and not (old and old.phase in SETTLED and old.spec_digest == status.spec_digest)

    def digests(self) -> Mapping[Key, str]:
        """The spec digest that is wanted of each key."""
        return _Digests(self.desired)

    def phases(self, deployment: str) -> set[ResourcePhase]:
        """Those of a deployment's resources, each once; of a thousand that stay as they are, made once."""
        as_of = (self.revision, self._phased)
        known = self._phases.get(deployment)
        if known is None or known[0] != as_of:
            keys = [*self.deployments[deployment].keys, *(record.key for record in self.leaving(deployment))]
            known = as_of, {self.statuses[key].phase for key in keys if key in self.statuses}
            self._phases[deployment] = known
        return known[1]

    def resources(self, deployment: str) -> dict[str, ResourceStatus]:
        """Every resource of a deployment, those on their way out too."""
        keys = self.deployments[deployment].keys | {record.key for record in self.leaving(deployment)}
        return {str(key): self.statuses[key] for key in keys if key in self.statuses}


class _Digests(Mapping[Key, str]):
    """A view of desired specs as their digests."""

    def __init__(self, desired: Mapping[Key, Desired[Any]]) -> None:
        self._desired = desired

    def __getitem__(self, key: Key) -> str:
        return self._desired[key].digest

    def __iter__(self) -> Any:
        return iter(self._desired)

    def __len__(self) -> int:
        return len(self._desired)
