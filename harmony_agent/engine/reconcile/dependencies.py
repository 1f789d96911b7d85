"""Dependencies between resources; wakes a resource when the other settled or is gone.

Asks the queue to add a key; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from harmony_agent.core.resources import Key
from harmony_agent.engine.reconcile.work_queue import WorkQueue


class Dependencies:
    """The resources that others wait for."""

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._waiting: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        """Number of resources that others wait for."""
        return len(self._waiting)

    def wait_for(self, key: Key, others: Iterable[str]) -> None:
        """Work on `key` again when one of `others` settled or is gone."""
        for other in others:
            self._waiting.setdefault(other, set()).add(key)

    def wake(self, other: str) -> None:
        """`other` settled or is gone: whoever waited for it may go on."""
        for key in self._waiting.pop(other, ()):
            self._queue.add(key)
