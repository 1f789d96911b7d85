"""A Clock that stands still until a test moves it: whoever sleeps is woken in the order in which
they are due.

Nothing here waits for real time, so a test of an hour takes none.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools

TURNS = 50
"""Turns of the event loop in which everything that can run has run; chains of wake-ups are shorter
than this.
"""


class FakeClock:
    """Implements `topology.Clock`. `wall` and `synced` may be set freely: a machine's wall clock
    may jump.
    """

    def __init__(self, monotonic: float = 1000.0, wall: float = 1_796_000_000.0) -> None:
        self.wall = wall
        self.synced: bool | None = True
        self._monotonic = monotonic
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Event]] = []

    def now(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self._monotonic

    def synchronized(self) -> bool | None:
        return self.synced

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        entry = (self._monotonic + seconds, next(self._order), asyncio.Event())
        heapq.heappush(self._sleepers, entry)
        try:
            await entry[2].wait()
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)

    @property
    def sleeping(self) -> int:
        """How many sleep now."""
        return len(self._sleepers)

    async def settle(self) -> None:
        """Let everything run that can without time going on."""
        for _ in range(TURNS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, stopping wherever somebody is due; all of them have run when it
        returns.
        """
        await self.settle()
        end = self._monotonic + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, event = heapq.heappop(self._sleepers)
            self._move(due)
            event.set()
            await self.settle()
        self._move(end)
        await self.settle()

    def _move(self, to: float) -> None:
        if to > self._monotonic:
            self.wall += to - self._monotonic
            self._monotonic = to
