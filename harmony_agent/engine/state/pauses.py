"""The pauses of this device, mirrored in memory: what is held, and until when.

A pause is durable before it holds. One that ended holds no more at once, whatever the disk says: an
agent that starts counts it anew.
"""

from __future__ import annotations

from collections.abc import Collection

import anyio

from harmony_agent.core import pauses
from harmony_agent.core.changes import Moment
from harmony_agent.core.pauses import Pause
from harmony_agent.engine.loops import Signal
from harmony_agent.topology.control_plane import Ledger


class Pauses:
    """By scope, at most one each."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held = {pause.scope: pause for pause in ledger.pauses()}
        self.found = bool(self._held)
        """the disk held some at the start; they may have ended since"""
        self._writing = anyio.Lock()
        self.ended = Signal()
        """rings when something isn't paused any more"""

    def begin(self, now: Moment) -> None:
        """Count them from now on, at the start of an agent."""
        left = {scope: pause.after_start(now) for scope, pause in self._held.items()}
        self._held = {
            scope: pauses.anew(self._held[scope], seconds, now)
            for scope, seconds in left.items()
            if seconds > 0
        }

    def until(self, deployment: str) -> str:
        """The end of the pause that holds a deployment; "" if there is none."""
        found = pauses.of(self._held.values(), deployment) if self._held else None
        return found.until if found is not None else ""

    def shown(self) -> dict[str, str]:
        """Each scope with its end, in order."""
        return {scope: self._held[scope].until for scope in sorted(self._held)}

    def next_end(self, now: Moment) -> float | None:
        """Seconds until the first one ends."""
        return min((pause.after(now) for pause in self._held.values()), default=None)

    async def put(self, pause: Pause) -> None:
        """Hold this, in place of what held its scope. Raises Transient."""
        async with self._writing:
            held = {**self._held, pause.scope: pause}
            await self._ledger.keep_pauses(list(held.values()))
            self._held = held

    async def end(self, scopes: Collection[str]) -> None:
        """Hold these no more. Raises Transient, and holds them still."""
        async with self._writing:
            held = {scope: one for scope, one in self._held.items() if scope not in scopes}
            await self._ledger.keep_pauses(list(held.values()))
            self._held = held
        self.ended.notify()

    def expire(self, now: Moment) -> set[str]:
        """Hold no more what has ended; returns the scopes."""
        over = {scope for scope, pause in self._held.items() if pause.after(now) <= 0}
        for scope in over:
            del self._held[scope]
        if over:
            self.ended.notify()
        return over

    async def rebuild(self) -> None:
        """Write them after their file was taken away. Raises Transient."""
        async with self._writing:
            await self._ledger.keep_pauses(list(self._held.values()))

    async def keep(self, now: Moment) -> None:
        """Write how much is left, for whoever starts after a power cut. Raises Transient."""
        async with self._writing:
            self._held = {
                scope: pauses.anew(pause, pause.after(now), now)
                for scope, pause in self._held.items()
            }
            await self._ledger.keep_pauses(list(self._held.values()))
