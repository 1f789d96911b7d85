"""A ledger in memory: what is in `stored` and `owned` survives the agent. Writes can be made to
fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harmony_agent.core.errors import Transient
from harmony_agent.core.pauses import Pause
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.core.reverts import Fallback
from harmony_agent.topology.control_plane import StoredManifest


class FakeLedger:
    """Implements `topology.control.Ledger`. `full`: each write fails as on a full disk."""

    def __init__(self) -> None:
        self.stored: dict[str, StoredManifest] = {}
        self.owned: dict[Key, OwnershipRecord] = {}
        self.paused: list[Pause] = []
        self.kept: list[Fallback] = []
        self.full = False
        self.writes = 0

    def manifests(self) -> Sequence[StoredManifest]:
        return list(self.stored.values())

    def records(self) -> Sequence[OwnershipRecord]:
        return list(self.owned.values())

    def pauses(self) -> Sequence[Pause]:
        return list(self.paused)

    async def keep_pauses(self, pauses: Sequence[Pause]) -> None:
        await self._write()
        self.paused = list(pauses)

    def fallbacks(self) -> Sequence[Fallback]:
        return list(self.kept)

    async def keep_fallbacks(self, fallbacks: Sequence[Fallback]) -> None:
        await self._write()
        self.kept = list(fallbacks)

    async def accept(self, manifest: StoredManifest) -> None:
        await self._write()
        self.stored[manifest.deployment] = manifest

    async def put(self, records: Sequence[OwnershipRecord]) -> None:
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

    async def rebuild(
        self, manifests: Sequence[StoredManifest], records: Sequence[OwnershipRecord]
    ) -> None:
        self.stored = {stored.deployment: stored for stored in manifests}
        self.owned = {record.key: record for record in records}

    def close(self) -> None:
        return
