"""Turns of passes that write the same record.

A record is written whole. A pass over one resource and a pass that takes something from it must
not overlap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import anyio

from harmony_agent.core.resources import Key


class Turns:
    """One holder for each key: its own pass, or a pass that rewrites its record."""

    def __init__(self) -> None:
        self._at_work: set[Key] = set()
        self._lent: dict[Key, anyio.Event] = {}

    async def begin(self, key: Key) -> None:
        """Start a pass over `key`, after the pass that rewrites its record."""
        while key in self._lent:
            await self._lent[key].wait()
        self._at_work.add(key)

    def end(self, key: Key) -> None:
        """Note that the pass ended."""
        self._at_work.discard(key)

    def busy(self, keys: Collection[Key]) -> list[Key]:
        """List those of `keys` that somebody holds."""
        return [key for key in keys if key in self._at_work or key in self._lent]

    @contextmanager
    def lend(self, keys: Collection[Key]) -> Iterator[None]:
        """Keep passes away from `keys`, none of which is busy."""
        for key in keys:
            self._lent[key] = anyio.Event()
        try:
            yield
        finally:
            for key in keys:
                self._lent.pop(key).set()
