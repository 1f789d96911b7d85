"""A ledger that was read once, for commands that foresee: what is written to it is kept nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harmony_agent.adapters.ledger import fallbacks_file, pauses_file
from harmony_agent.adapters.ledger.ledger import read_only
from harmony_agent.core.pauses import Pause
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.core.reverts import Fallback
from harmony_agent.topology.control_plane import StoredManifest


class LedgerSnapshot:
    """`topology.control_plane.Ledger` in memory."""

    def __init__(
        self,
        manifests: Sequence[StoredManifest] = (),
        records: Sequence[OwnershipRecord] = (),
        pauses: Sequence[Pause] = (),
        fallbacks: Sequence[Fallback] = (),
    ) -> None:
        self._manifests, self._records = manifests, records
        self._pauses, self._fallbacks = pauses, fallbacks

    @classmethod
    def read(cls, state_dir: Path) -> LedgerSnapshot:
        """Read the ledger of an agent, running or stopped; empty where there is none yet. Raises
        LedgerUnreadable.
        """
        if not (state_dir / "ledger.db").exists():
            return cls()
        return cls(
            *read_only(state_dir), pauses_file.read(state_dir), fallbacks_file.read(state_dir)
        )

    def manifests(self) -> Sequence[StoredManifest]:
        """Every manifest that was read."""
        return self._manifests

    def records(self) -> Sequence[OwnershipRecord]:
        """Every record that was read."""
        return self._records

    def pauses(self) -> Sequence[Pause]:
        """Every pause that was read."""
        return self._pauses

    async def keep_pauses(self, pauses: Sequence[Pause]) -> None:
        """Keep nothing."""

    def fallbacks(self) -> Sequence[Fallback]:
        """Everything to go back to that was read."""
        return self._fallbacks

    async def keep_fallbacks(self, fallbacks: Sequence[Fallback]) -> None:
        """Keep nothing."""

    async def accept(self, manifest: StoredManifest) -> None:
        """Keep nothing."""

    async def put(self, records: Sequence[OwnershipRecord]) -> None:
        """Keep nothing."""

    async def forget(self, *keys: Key) -> None:
        """Keep nothing."""

    def intact(self) -> bool:
        """Return True: there are no files to lose."""
        return True

    async def rebuild(
        self, manifests: Sequence[StoredManifest], records: Sequence[OwnershipRecord]
    ) -> None:
        """Keep nothing."""

    def close(self) -> None:
        """Let go of nothing."""
