"""Watch the engine's loops for the service manager's watchdog, and name a loop that has stalled.

Slow work is not a stall: an observation that waits for an answer, thirty-two resources that hang.
Restarts nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harmony_agent.engine.reconcile.relist import Relister
from harmony_agent.engine.reconcile.work_queue import WorkQueue

PERIODS: Final = 3
SLACK: Final = 5.0
"""Seconds on top, for a machine that has much else to do."""


class Watchdog:
    """Asked periodically, each time at least one turn of the event loop after the last."""

    def __init__(self, queue: WorkQueue, relisters: Sequence[Relister], period: float) -> None:
        """`period` is that of the relist, in seconds."""
        self._queue = queue
        self._relisters = relisters
        self._bound = PERIODS * period + SLACK
        self._turns = -1

    def stalled(self) -> str:
        """Name the loop that has not turned since the last call, though it was woken.

        "" if all turn.
        """
        turns, self._turns = self._turns, self._queue.turns
        if turns == self._queue.turns:
            return "the queue"
        self._queue.poke()
        for relister in self._relisters:
            if relister.idle() > self._bound:
                return f"the relist of {relister.kind}"
        return ""
