"""The ledger's records, mirrored in memory: what each pass reads, and every write of a record.

What a crash may lose (that a spec was applied) is written a little later by `flush`, all else
before it is acted on.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar, overload

import anyio

from harmony_agent.core.changes import of_this_form
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.engine.loops import Signal
from harmony_agent.engine.state.group_commit import GroupCommit
from harmony_agent.engine.state.lost import Lost
from harmony_agent.engine.state.turns import Turns
from harmony_agent.topology.control_plane import Ledger, StoredManifest

T = TypeVar("T")


class Holders:
    """By claim, the keys whose records have it."""

    def __init__(self, records: Iterable[OwnershipRecord]) -> None:
        self._keys: dict[str, set[Key]] = {}
        for record in records:
            self.change(None, record)

    def of(self, claim: str) -> Collection[Key]:
        """List who has `claim`."""
        return self._keys.get(claim, ())

    def change(self, old: OwnershipRecord | None, new: OwnershipRecord | None) -> None:
        """Take one record in place of another."""
        before = old.claims if old is not None else frozenset()
        now = new.claims if new is not None else frozenset()
        if old is not None:
            for claim in before - now:
                self._keys[claim].discard(old.key)
                if not self._keys[claim]:
                    del self._keys[claim]
        if new is not None:
            for claim in now - before:
                self._keys.setdefault(claim, set()).add(new.key)


class Records(Mapping[Key, OwnershipRecord]):
    """Every record of the ledger, by key."""

    def __init__(
        self, ledger: Ledger, desired: Container[Key], lost: Lost, released: Signal
    ) -> None:
        """`released` rings when a claim or a record is dropped; `lost` hears of what is owned."""
        self._ledger = ledger
        self._desired = desired
        self._lost = lost
        self._released = released
        self._records = {record.key: of_this_form(record) for record in ledger.records()}
        self.turns = Turns()
        self.holders = Holders(self._records.values())
        self.revision = 0
        """another one whenever a record changed"""
        self.unwanted: dict[Key, None] = dict.fromkeys(self._records)
        """keys that no manifest wants (or none yet, after a start): few, and often asked for"""
        self.taking: set[Key] = set()
        """keys whose records are made whole just now"""
        self._unwritten: set[Key] = set()
        self._writing = anyio.Lock()
        """held from a write to the disk until memory says the same: no flush or rebuild may bring
        back what is older
        """
        self._puts: GroupCommit[Sequence[OwnershipRecord]] = GroupCommit(self._put)
        self._forgets: GroupCommit[Key] = GroupCommit(self._forget)

    def __getitem__(self, key: Key) -> OwnershipRecord:
        return self._records[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, key: object) -> bool:
        return key in self._records

    @overload
    def get(self, key: Key, default: None = None, /) -> OwnershipRecord | None: ...
    @overload
    def get(self, key: Key, default: T, /) -> OwnershipRecord | T: ...
    def get(self, key: Key, default: T | None = None, /) -> OwnershipRecord | T | None:
        """As of a dict: each pass asks, so it costs no exception."""
        return self._records.get(key, default)

    async def write(self, record: OwnershipRecord) -> None:
        """Put a record, durably before this returns."""
        with anyio.CancelScope(shield=True):  # others wait for the same commit
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
        with self.turns.lend(keys), anyio.CancelScope(shield=True):
            await self._puts.add((own, *others))
        return True

    def write_later(self, record: OwnershipRecord) -> None:
        """Put a record; durable at the next `flush`."""
        old = self._records.get(record.key)
        if old == record:
            return
        self._remember(record)
        self._unwritten.add(record.key)
        if old is not None and old.claims - record.claims:
            self._released.notify()

    async def flush(self) -> None:
        """Make durable what `write_later` left."""
        async with self._writing:
            if not self._unwritten:
                return
            keys, self._unwritten = self._unwritten, set()
            try:
                await self._ledger.put([self._records[key] for key in keys if key in self._records])
            except ResourceError:
                self._unwritten |= keys
                raise

    async def drop(self, key: Key) -> None:
        """Drop a record, durably before this returns."""
        await self._forgets.add(key)

    async def accept(self, stored: StoredManifest) -> None:
        """Persist a manifest, and before it what its predecessor left to be written."""
        await self.flush()
        async with self._writing:
            await self._ledger.accept(stored)

    async def rebuild(self, stored: Sequence[StoredManifest]) -> None:
        """Write the ledger anew from memory, with these manifests."""
        async with self._writing:
            await self._ledger.rebuild(stored, list(self._records.values()))

    def sort_out(self, keys: Iterable[Key]) -> None:
        """Note which of `keys` are recorded and not wanted, after that changed."""
        for key in keys:
            if key in self._records and key not in self._desired:
                self.unwanted[key] = None
            else:
                self.unwanted.pop(key, None)

    @contextmanager
    def taken_back(self, bare: OwnershipRecord) -> Iterator[None]:
        """Let a kind see this record while it is made whole: in memory alone, and not as something
        that is to go.
        """
        old = self._records.get(bare.key)
        self.taking.add(bare.key)
        self._remember(bare)
        try:
            yield
        finally:
            self.taking.discard(bare.key)
            self._discard(bare.key)
            if old is not None:
                self._remember(old)

    async def _put(self, groups: list[Sequence[OwnershipRecord]]) -> None:
        records = [record for group in groups for record in group]
        async with self._writing:
            await self._ledger.put(records)
            for record in records:
                self._remember(record)
                self._unwritten.discard(record.key)

    async def _forget(self, keys: list[Key]) -> None:
        async with self._writing:
            await self._ledger.forget(*keys)
            for key in keys:
                self._discard(key)
            self._unwritten.difference_update(keys)

    def _discard(self, key: Key) -> None:
        self.holders.change(self._records.pop(key, None), None)
        self.unwanted.pop(key, None)
        self.revision += 1

    def _remember(self, record: OwnershipRecord) -> None:
        self.holders.change(self._records.get(record.key), record)
        self._records[record.key] = record
        if record.key not in self.taking:
            self._lost.settle(record)
        self.revision += 1
        if record.key not in self._desired:
            self.unwanted[record.key] = None
