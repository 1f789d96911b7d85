"""One daemon-reload for a burst of units. A reload waits a while for units that will write soon.

Knows nothing of D-Bus: its owner gives it the call that reloads.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

import anyio

from harmony_agent.core.errors import Terminal, Transient

PATIENCE: Final = 5.0
"""Seconds that a reload waits for units that are expected to write."""


@dataclass(slots=True)
class _Round:
    """Units that one reload serves."""

    over: anyio.Event = field(default_factory=anyio.Event)
    served: bool = False
    error: Transient | Terminal | None = None


class Reloads:
    """`reload` makes the manager load all unit files; it returns when that is done."""

    def __init__(self, reload: Callable[[], Awaitable[None]], patience: float = PATIENCE) -> None:
        self._reload = reload
        self._patience = patience
        self._expected: set[str] = set()
        self._fewer: anyio.Event | None = None
        self._gathering: _Round | None = None
        self._lock = anyio.Lock()

    def batch_begin(self, names: Collection[str]) -> None:
        """These may write files soon."""
        self._expected.update(names)

    def batch_end(self, name: str) -> None:
        """`name` writes no more files for now."""
        if name in self._expected:
            self._expected.discard(name)
            if self._fewer is not None:
                self._fewer.set()

    async def served(self, name: str) -> None:
        """Return when a reload has ended that began after this call; raise what it raised."""
        self.batch_end(name)
        while True:
            current = self._gathering
            if current is None:
                await self._lead()
                return
            await current.over.wait()
            if current.error is not None:
                raise _same(current.error) from current.error
            if current.served:
                return

    async def _lead(self) -> None:
        current = self._gathering = _Round()
        try:
            with anyio.move_on_after(self._patience) as waiting:
                while self._expected:
                    self._fewer = anyio.Event()
                    await self._fewer.wait()
            if waiting.cancelled_caught:
                self._expected.clear()  # a unit that hangs holds up one reload, and no later one
            async with self._lock:
                self._gathering = None  # a later caller may have written too late for this one
                await self._reload()
            current.served = True
        except (Transient, Terminal) as error:
            current.error = error
            raise
        finally:
            if self._gathering is current:
                self._gathering = None
            current.over.set()


def _same(error: Transient | Terminal) -> Transient | Terminal:
    """Return a copy of the error: one exception is raised in one task only."""
    if isinstance(error, Terminal):
        return Terminal(error.reason, str(error))
    return Transient(error.reason, str(error), delay=error.delay, phase=error.phase)
