"""An event loop whose time passes only when everybody waits: a day of timers takes as long as the
work in it.

For code that waits with the loop's own timers (anyio's and asyncio's). No threads, no sockets: only
time wakes it.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class _Jumping(selectors.BaseSelector):
    """Instead of blocking, lets time pass."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._inner = selectors.DefaultSelector()
        self._loop = loop

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError(
                "everybody waits for somebody else, and no timer is set: nothing can go on"
            )
        if timeout > 0:
            self._loop.passed += timeout
        return self._inner.select(0)

    def get_map(self) -> Any:
        return self._inner.get_map()

    def close(self) -> None:
        self._inner.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """`passed` is the time in seconds since it was made."""

    def __init__(self) -> None:
        self.passed = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.passed


class VirtualClock:
    """`topology.Clock` on the loop's time; the wall clock is `offset` ahead of it, and may be
    set.
    """

    def __init__(self, loop: VirtualLoop, offset: float = 1_796_000_000.0) -> None:
        self._loop = loop
        self.offset = offset

    def now(self) -> float:
        return self._loop.passed + self.offset

    def monotonic(self) -> float:
        return self._loop.passed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def synchronized(self) -> bool | None:
        return True
