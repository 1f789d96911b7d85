"""The engine's knowledge, in memory: enforced manifests, desired specs, records, statuses.

Decides nothing. The ledger's records are mirrored here; what a crash may lose (that a spec was
applied) is written a little later by `flush`, all else before it is acted on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import anyio

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.manifests import DesiredDigests, desired_of
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.loops import Changes, Signal
from harmony_agent.engine.state.deployment import Deployment
from harmony_agent.engine.state.group_commit import GroupCommit
from harmony_agent.engine.state.holders import Holders
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.engine.state.lost import Lost
from harmony_agent.engine.state.turns import Turns
from harmony_agent.topology.control_plane import Ledger, StoredManifest
from scores.manifest import WireManifest
from scores.status import SETTLED, ResourcePhase, ResourceStatus


class DeviceState:
    """The engine's memory. Only the event loop's thread touches it."""

    def __init__(self, ledger: Ledger, wire_now: Callable[[], str]) -> None:
        self.ledger = ledger
        self._wire_now = wire_now
        self.deployments: dict[str, Deployment] = {}
        self.desired: dict[Key, Desired[Any]] = {}
        self.records: dict[Key, OwnershipRecord] = {
            record.key: record for record in ledger.records()
        }
        self.statuses: dict[Key, ResourceStatus] = {}
        self.turns = Turns()
        self.holders = Holders(self.records.values())
        self.enforced = 0
        """another one whenever `desired` changed"""
        self._unwanted: dict[Key, None] = dict.fromkeys(self.records)
        """keys of records that no manifest wants (or none yet, after a start): mostly none, and
        often asked for
        """
        self.revision = 0
        """another one whenever `desired` or `records` changed"""
        self._phased = 0
        """another one whenever the phase of a resource changed"""
        self._phases: dict[str, tuple[tuple[int, int], set[ResourcePhase]]] = {}
        self._stores: dict[str, DeviceStateView] = {}
        self.changes = Changes()
        """names of deployments whose status may differ now"""
        self.released = Signal()
        """rings when something isn't wanted or ours any more: another deployment may have it"""
        self.lost = Lost()
        self._taking: set[Key] = set()
        self._unwritten: set[Key] = set()
        self._writing = anyio.Lock()
        """held from a write to the disk until memory says the same: no flush or rebuild may bring
        back what is older
        """
        self._puts: GroupCommit[Sequence[OwnershipRecord]] = GroupCommit(self._put)
        self._forgets: GroupCommit[Key] = GroupCommit(self._forget)

    def store(self, kind: str) -> DeviceStateView:
        """View of one kind for its reconciler."""
        return self._stores.setdefault(kind, DeviceStateView(self, kind))

    def now(self) -> str:
        """The time, as the wire spells it."""
        return self._wire_now()

    def deployment(self, name: str) -> Deployment:
        """The deployment, made if it is new."""
        return self.deployments.setdefault(name, Deployment(name))

    # -- manifests

    def enforce(
        self,
        stored: StoredManifest,
        manifest: WireManifest,
        digests: Mapping[str, str] | None = None,
        taken: Collection[Key] = (),
    ) -> set[Key]:
        """Hold the device to a manifest that was persisted; returns the keys to work on.

        `digests` as `digests_of`. `taken` are ours since just now.
        """
        deployment = self.deployment(stored.deployment)
        before = {key: self.desired[key] for key in deployment.keys}
        wanted = {
            key: before[key]
            if key in before and before[key].version == desired.version
            else desired
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
        owned = {
            key for key, record in self.records.items() if record.deployment == stored.deployment
        }
        deployment.stored, deployment.removed, deployment.not_accepted = (
            stored,
            manifest.removed,
            None,
        )
        deployment.keys = set(wanted)
        self._follow_on_remove(wanted)
        self.changes.tell(stored.deployment)
        stale = (owned | before.keys()) - wanted.keys()
        changed = {
            key for key, desired in wanted.items() if before.get(key) is not desired or key in taken
        }
        self._not_yet(stale, changed)
        if before.keys() - wanted.keys():
            self.released.notify()
        return stale | changed

    def _follow_on_remove(self, wanted: Mapping[Key, Desired[Any]]) -> None:
        """Copy `on_remove` from the newest manifest, because the resource may be removed before its
        next reconcile.
        """
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
                old,
                Outcome("Progressing", detail=old.status if old else None),
                desired.generation,
                desired.digest,
                now,
            )
        for key in stale:
            record, old = self.records.get(key), self.statuses.pop(key, None)
            if record is not None:
                outcome = Outcome("Removing", detail=old.status if old else None)
                self.statuses[key] = resource_status(
                    old, outcome, record.generation, record.spec_digest, now
                )

    def set_not_accepted(self, deployment: str, not_accepted: NotAccepted | None) -> None:
        """Note what was said of a newer manifest; None clears it."""
        entry = self.deployment(deployment)
        if entry.not_accepted != not_accepted:
            entry.not_accepted = not_accepted
            self.changes.tell(deployment)

    def is_being_removed(self, key: Key) -> bool:
        """Return whether what the ledger has under `key` is to be taken off: its deployment is
        known, and wants it no more.
        """
        record = self.records.get(key)
        if record is None or key in self.desired or key in self._taking:
            return False
        deployment = self.deployments.get(record.deployment)
        return deployment is not None and deployment.stored is not None

    def has(self, deployment: str) -> dict[str, str]:
        """List what a deployment owns or wants, with each `on_remove`.

        Leaves out what is being removed.
        """
        owned = {
            str(key): record.on_remove
            for key, record in self.records.items()
            if record.deployment == deployment and not self.is_being_removed(key)
        }
        wanted = {
            str(key): one.spec.on_remove
            for key, one in self.desired.items()
            if one.deployment == deployment
        }
        return {str(key): "delete" for key in self.lost.of(deployment)} | owned | wanted

    def being_removed(self, deployment: str) -> list[OwnershipRecord]:
        """Records of a deployment that are on their way out."""
        return [
            self.records[key]
            for key in self._unwanted
            if self.records[key].deployment == deployment and self.is_being_removed(key)
        ]

    # -- what remains of an earlier life

    def lose(self, deployment: str, found: Mapping[Key, ResourceStatus]) -> None:
        """Note what the ledger knows nothing of."""
        self.lost.add(deployment, found)
        self.changes.tell(deployment)

    def remains(self, deployment: str) -> dict[Key, ResourceStatus]:
        """Answer for the operator."""
        return self.lost.shown(deployment, self.desired, self.statuses)

    @contextmanager
    def taking(self, bare: OwnershipRecord) -> Iterator[None]:
        """Let a kind see this record while it is made whole: in memory alone, and not as something
        that is to go.
        """
        old = self.records.get(bare.key)
        self._taking.add(bare.key)
        self._remember(bare)
        try:
            yield
        finally:
            self._taking.discard(bare.key)
            self.records.pop(bare.key)
            self._unwanted.pop(bare.key, None)
            self.revision += 1
            if old is not None:
                self._remember(old)

    # -- records

    async def write(self, record: OwnershipRecord) -> None:
        """Put a record, durably before this returns."""
        await self._puts.add((record,))

    async def write_together(
        self, own: OwnershipRecord, others: Collection[OwnershipRecord]
    ) -> bool:
        """Put the record of the pass that asks, and those of other resources, in one commit.

        False: a pass over one of the others is under way, and nothing was written; ask again soon.
        """
        keys = [record.key for record in others]
        if self.turns.busy(keys):
            return False
        with self.turns.lend(keys):
            await self._puts.add((own, *others))
        return True

    async def _put(self, groups: list[Sequence[OwnershipRecord]]) -> None:
        records = [record for group in groups for record in group]
        async with self._writing:
            await self.ledger.put(records)
            for record in records:
                self._remember(record)
                self._unwritten.discard(record.key)

    def write_later(self, record: OwnershipRecord) -> None:
        """Put a record; durable at the next `flush`."""
        old = self.records.get(record.key)
        if old == record:
            return
        self._remember(record)
        self._unwritten.add(record.key)
        if old is not None and old.claims - record.claims:
            self.released.notify()

    def _remember(self, record: OwnershipRecord) -> None:
        self.holders.change(self.records.get(record.key), record)
        self.records[record.key] = record
        if record.key not in self._taking:
            self.lost.settle(record)
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

    async def accept(self, stored: StoredManifest) -> None:
        """Persist a manifest, and before it what its predecessor left to be written; `enforce` it
        next.
        """
        await self.flush()
        async with self._writing:
            await self.ledger.accept(stored)
            self.deployment(stored.deployment).stored = stored

    async def rebuild(self) -> None:
        """Write the ledger anew from memory, all of it."""
        async with self._writing:
            stored = [
                entry.stored for entry in self.deployments.values() if entry.stored is not None
            ]
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
                self.changes.tell(record.deployment)
        self.released.notify()

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
        self.changes.tell(deployment)
        settled = status.phase in SETTLED
        return settled and not (
            old and old.phase in SETTLED and old.spec_digest == status.spec_digest
        )

    def digests(self) -> Mapping[Key, str]:
        """The spec digest that is wanted of each key."""
        return DesiredDigests(self.desired)

    def phases(self, deployment: str) -> set[ResourcePhase]:
        """Those of a deployment's resources, each once; of a thousand that stay as they are, made
        once.
        """
        as_of = (self.revision, self._phased)
        known = self._phases.get(deployment)
        if known is None or known[0] != as_of:
            keys = [
                *self.deployments[deployment].keys,
                *(record.key for record in self.being_removed(deployment)),
            ]
            known = as_of, {self.statuses[key].phase for key in keys if key in self.statuses}
            self._phases[deployment] = known
        return known[1]

    def resources(self, deployment: str) -> dict[str, ResourceStatus]:
        """Every resource of a deployment, those on their way out too."""
        keys = self.deployments[deployment].keys | {
            record.key for record in self.being_removed(deployment)
        }
        found = {key: self.statuses[key] for key in keys if key in self.statuses} | self.remains(
            deployment
        )
        return {str(key): status for key, status in found.items()}
