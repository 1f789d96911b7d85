"""Makes the durable writes that come while one is under way as one.

A sync of the disk costs the same for many as for one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import anyio

from harmony_agent.core.errors import Transient

T = TypeVar("T")


class _Batch(Generic[T]):
    def __init__(self) -> None:
        self.items: list[T] = []
        self.done = anyio.Event()
        self.error: Exception | None = Transient(
            "LedgerUnwritable", "cannot write the ledger: the write was cut off"
        )


class GroupCommit(Generic[T]):
    """Hands what is added to `commit`, many at a time, in the order in which it came."""

    def __init__(self, commit: Callable[[list[T]], Awaitable[None]]) -> None:
        self._commit = commit
        self._lock = anyio.Lock()
        self._next: _Batch[T] = _Batch()

    async def add(self, item: T) -> None:
        """Returns when `item` is committed; raises what its commit raised."""
        batch = self._next
        batch.items.append(item)
        if len(batch.items) > 1:  # the first of a batch commits it
            await batch.done.wait()
            if batch.error is not None:
                raise batch.error
            return
        try:
            async with self._lock:
                self._next = _Batch()
                await self._commit(batch.items)
                batch.error = None
        except Exception as error:
            batch.error = error
            raise
        finally:
            if (
                self._next is batch
            ):  # cut off while it waited for its turn: nobody may join it any more
                self._next = _Batch()
            batch.done.set()
