"""Compute waits between tries. Pure: time and randomness come in as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harmony_agent.core.frozen import frozen


@frozen()
class Backoff:
    """Doubling delays in seconds from `first` to `most`; `immediate` makes the first try come at
    once.
    """

    first: float
    most: float
    immediate: bool = False

    def delay(self, tries: int, jitter: float = 0.0) -> float:
        """The wait before try number `tries` (1 is the first again); `jitter` from 0 to 1 takes off
        up to a tenth.
        """
        step = tries - 1 - self.immediate
        if step < 0:
            return 0.0
        wait = min(self.most, self.first * 2.0 ** min(step, 62))
        return wait * (1.0 - 0.1 * jitter)


RETRY: Final = Backoff(first=0.5, most=60.0)
"""After a transient error of a resource."""
CRASH: Final = Backoff(first=10.0, most=300.0, immediate=True)
"""Between starts of what ends by itself."""
CRASH_RESET: Final = 600.0
"""Good seconds after which a crash loop is forgotten."""
CONTENDED: Final = Backoff(first=10.0, most=300.0)
"""Between repairs of what something else keeps undoing."""


@dataclass(slots=True)
class CrashLoop:
    """Count restarts of one resource.

    The caller keeps one a resource and drops it with a new spec.
    """

    starts: int = 0
    last: float = 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next start is due, at monotonic time `now`."""
        if now - self.last >= CRASH_RESET:
            self.starts = 0
        return max(0.0, self.last + CRASH.delay(self.starts + 1) - now) if self.starts else 0.0

    def started(self, now: float) -> None:
        """Note a start at monotonic time `now`."""
        self.starts += 1
        self.last = now
