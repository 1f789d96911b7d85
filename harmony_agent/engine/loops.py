"""Parts of every loop of the engine: a period that a signal may cut short, and the rule that no
defect ends a loop.

An unforeseen error is logged by type and place alone, because its text may hold a value.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from harmony_agent.topology import Clock

log = logging.getLogger(__name__)

AGAIN: Final = 1.0
"""Seconds until work that could not be done now is tried again."""


class Signal:
    """Wakes the loop that waits for it. A signal that comes between two waits isn't lost."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def notify(self) -> None:
        """Wake the loop."""
        self._event.set()

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until it is notified, for `seconds` at most."""
        with anyio.move_on_after(seconds):
            await self._event.wait()
        if self._event.is_set():
            self._event = anyio.Event()


class Changes:
    """Tells each subscriber the names that changed since it last took them."""

    def __init__(self) -> None:
        self._subscribers: list[Subscription] = []

    def subscribe(self) -> Subscription:
        """Add a subscriber; it lives as long as this."""
        subscriber = Subscription()
        self._subscribers.append(subscriber)
        return subscriber

    def tell(self, name: str) -> None:
        """`name` changed."""
        for subscriber in self._subscribers:
            subscriber.add(name)


class Subscription(Signal):
    """Names that changed; each one notifies."""

    def __init__(self) -> None:
        super().__init__()
        self._names: set[str] = set()

    def add(self, name: str) -> None:
        """Note one and wake the loop."""
        self._names.add(name)
        self.notify()

    def take(self) -> set[str]:
        """All since the last call."""
        names, self._names = self._names, set()
        return names


def defect(what: str, error: Exception) -> str:
    """Log an unforeseen error without its text; returns its type's name, for a status."""
    place = "".join(traceback.format_tb(error.__traceback__)[-3:])
    log.error(
        "%s: a defect of the agent: %s\n%s",
        what,
        type(error).__name__,
        place,
        extra={"reason": "InternalError"},
    )
    return type(error).__name__


async def every(
    clock: Clock,
    seconds: float,
    work: Callable[[], Awaitable[bool]],
    what: str,
    signal: Signal | None = None,
) -> None:
    """Do `work` now, each `seconds` counted from its beginning, and when `signal` is notified.

    Work that fails is done again sooner.
    """
    signal = signal or Signal()
    while True:
        began = clock.monotonic()
        try:
            good = await work()
        except Exception as error:  # the next round may go well, and the other loops go on
            defect(what, error)
            good = False
        wait = seconds if good else min(seconds, AGAIN)
        await signal.wait(max(0.05, began + wait - clock.monotonic()))
