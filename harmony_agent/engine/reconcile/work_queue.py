"""One queue of distinct keys. One worker works on a key at a time; many keys go side by side.

The queue knows the kind of a key and nothing else of it. A key that is added while it is worked on
is worked on once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import anyio
import anyio.abc

from harmony_agent.core.resources import Key
from harmony_agent.topology import Clock

WORKERS: Final = 128
"""Keys of one kind that are worked on side by side; each waits mostly for others. However many of
one kind hang, the other kinds go on."""


class WorkQueue:
    """Keys with the monotonic time at which each is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[Key, float] = {}
        self._held: dict[Key, float] = {}
        self._active: set[Key] = set()
        self._busy: Counter[str] = Counter()
        self._again: set[Key] = set()
        self._released: set[Key] = set()
        """released while a pass was under way: its retries are of an older spec"""
        self._waiting: dict[str, set[Key]] = {}
        """by resource, the keys that wait until it settled or is gone"""
        self.turns = 0
        """of the dispatcher; one that doesn't turn when it is poked is stuck"""
        self._changed = anyio.Event()

    def __len__(self) -> int:
        return len(self._due) + len(self._active)

    def add(self, key: Key, delay: float = 0.0) -> None:
        """Work on `key` after `delay` seconds at the latest, but not before a `hold` ends."""
        if key in self._active and not delay:
            self._again.add(key)
            return
        due = max(self._clock.monotonic() + delay, self._held.get(key, 0.0))
        if due < self._due.get(key, float("inf")):
            self._due[key] = due
            self._changed.set()

    def hold(self, key: Key, delay: float, latest: float | None = None) -> None:
        """Back off: work on `key` in `delay` seconds; no event makes it sooner.

        With `latest`, work on it in `latest` seconds; after `delay` seconds an event makes it
        sooner. An event during this pass counts, too.
        """
        if key in self._released:
            return
        now = self._clock.monotonic()
        self._held[key] = now + delay
        self._due[key] = self._held[key] if latest is None or key in self._again else now + latest
        self._again.discard(key)
        self._changed.set()

    def release(self, key: Key) -> None:
        """Void a retry of an older spec, also one that a pass under way is yet to ask for."""
        self._held.pop(key, None)
        if key in self._active:
            self._released.add(key)

    def wait_for(self, key: Key, others: Iterable[str]) -> None:
        """Work on `key` again when one of `others` settled or is gone."""
        for other in others:
            self._waiting.setdefault(other, set()).add(key)

    def wake(self, other: str) -> None:
        """Work on the keys that waited for `other`: it settled or is gone."""
        for key in self._waiting.pop(other, ()):
            self.add(key)

    @property
    def awaited(self) -> int:
        """Number of resources that others wait for."""
        return len(self._waiting)

    def working(self, key: Key) -> bool:
        """Return whether a pass over it is under way."""
        return key in self._active

    def poke(self) -> None:
        """Have the dispatcher turn once, though there may be nothing to do."""
        self._changed.set()

    async def run(self, work: Callable[[Key], Awaitable[None]]) -> None:
        """Work until cancelled. `work` handles its own errors."""
        async with anyio.create_task_group() as workers:
            while True:
                self.turns += 1
                self._changed = anyio.Event()
                now, full = self._clock.monotonic(), self._full()
                for key in [
                    key for key, due in self._due.items() if due <= now and key.kind not in full
                ]:
                    if self._busy[key.kind] >= WORKERS:
                        continue
                    del self._due[key]
                    if key in self._active:
                        self._again.add(key)
                        continue
                    self._active.add(key)
                    self._busy[key.kind] += 1
                    self._held.pop(key, None)
                    workers.start_soon(self._one, key, work, name=str(key))
                await self._until_due()

    def _full(self) -> set[str]:
        """Kinds of which no more is worked on for now; asked once a turn, for a thousand keys may
        be due.
        """
        return {kind for kind, count in self._busy.items() if count >= WORKERS}

    async def _until_due(self) -> None:
        full = self._full()
        soonest = min([due for key, due in self._due.items() if key.kind not in full], default=None)
        if soonest is None:
            await self._changed.wait()
            return
        async with anyio.create_task_group() as waiting:
            waiting.start_soon(self._notify, soonest, waiting.cancel_scope)
            await self._changed.wait()
            waiting.cancel_scope.cancel()

    async def _notify(self, due: float, waiting: anyio.CancelScope) -> None:
        await self._clock.sleep(max(0.0, due - self._clock.monotonic()))
        waiting.cancel()

    async def _one(self, key: Key, work: Callable[[Key], Awaitable[None]]) -> None:
        try:
            await work(key)
        finally:
            self._active.discard(key)
            self._busy[key.kind] -= 1
            self._released.discard(key)
            if key in self._again:
                self._again.discard(key)
                self.add(key)
            self._changed.set()
