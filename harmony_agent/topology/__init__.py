"""Capabilities of a device, as Protocols: files, units, containers, an updater.

The adapters implement them.

Industry concepts, not tools; one module each, with the type of what is observed. Calls raise
`core.errors` alone. No library here. This module holds what all of them share: time, and content
from elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Clock(Protocol):
    """Time, injected. `now` is the wall clock in seconds since 1970, `monotonic` in seconds since
    some start.
    """

    def now(self) -> float:
        """Seconds since 1970, right only when the clock is synchronised."""
        ...

    def monotonic(self) -> float:
        """Seconds since some start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...

    def synchronized(self) -> bool | None:
        """Return whether something keeps the clock right; None where that can't be known."""
        ...


class ObjectStore(Protocol):
    """Content in a NATS object store."""

    async def fetch(
        self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Stream an object to `write`, at most `limit` bytes. Transient when it can't be had
        now.
        """
        ...
