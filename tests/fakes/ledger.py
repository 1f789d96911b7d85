"""A ledger in memory: what is in `stored` and `owned` survives the agent. Writes can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconcile import Key, Record
from harmony_agent.topology.control import Stored


class FakeLedger:
    """Implements `topology.control.Ledger`. `full`: each write fails as on a full disk."""

    def __init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self.owned: dict[Key, Record] = {}
        self.full = False
        self.writes = 0

    def manifests(self) -> Sequence[Stored]:
        return list(self.stored.values())

    def records(self) -> Sequence[Record]:
        return list(self.owned.values())

    async def accept(self, manifest: Stored) -> None:
        await self._write()
        self.stored[manifest.deployment] = manifest

    async def put(self, records: Sequence[Record]) -> None:
        await self._write()
        self.owned |= {record.key: record for record in records}

    async def forget(self, *keys: Key) -> None:
        await self._write()
        for key in keys:
            self.owned.pop(key, None)

    async def _write(self) -> None:
        await asyncio.sleep(0.002)
        if self.full:
            raise Transient("LedgerUnwritable", "cannot write the ledger: the disk is full")
        self.writes += 1

    def intact(self) -> bool:
        return True

    async def rebuild(self, manifests: Sequence[Stored], records: Sequence[Record]) -> None:
        self.stored = {stored.deployment: stored for stored in manifests}
        self.owned = {record.key: record for record in records}

    def close(self) -> None:
        return
