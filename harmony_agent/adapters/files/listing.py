"""Look through many paths again at the price of few.

While events come, a path without one is as it was. It is looked at all the same once in five
minutes: a write through another name or a mapping makes no event, and a file that stays open tells
of its writes only when it is closed.

Synchronous; called in worker threads, one at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

from harmony_agent.adapters.files.path_cache import PathCache
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.inotify import Watcher
from harmony_agent.topology import Clock
from harmony_agent.topology.files import PathQuery, PathState

SPREAD: Final = 300.0
"""Seconds within which each path is looked at, whatever the events say."""


class Listing:
    """The paths of one root, as they were last seen."""

    def __init__(self, cache: PathCache, watcher: Watcher, clock: Clock) -> None:
        self._cache, self._watcher, self._clock = cache, watcher, clock
        self._queries: Sequence[PathQuery] = ()
        self._states: list[PathState] = []
        self._index: dict[str, int] = {}
        self._directories: dict[str, int] = {}
        self._epoch = -1
        """of the watches when all paths were looked at last"""
        self._looked = -math.inf
        self._next = 0

    def look(
        self, queries: Sequence[PathQuery], job: Job
    ) -> tuple[Sequence[PathState], dict[str, int]]:
        """Observe the paths; an unchanged one comes from the cache.

        Also returns the inodes of their directories. Where nothing changed since the last call with
        the same sequence, the answer is the same sequence as well.
        """
        now, plain = self._clock.monotonic(), dict[str, int]()
        same = (queries is self._queries or queries == self._queries) and self._is_watched(plain)
        self._queries = ()  # all are due again, if this one is cut short
        if same:
            self._observe(queries, now, plain, job)
        else:
            self._observe_all(queries, now, plain, job)
        self._queries, self._looked = queries, now
        return self._states, plain

    def _is_watched(self, plain: dict[str, int]) -> bool:
        """Return whether each change since the last look at all has made an event."""
        directories = [directory or "/" for directory in self._directories]
        return self._watcher.covers(directories, self._epoch) and all(
            self._cache.inode(directory, plain) == inode
            for directory, inode in self._directories.items()
        )

    def _observe_all(
        self, queries: Sequence[PathQuery], now: float, plain: dict[str, int], job: Job
    ) -> None:
        self._epoch = self._watcher.epoch  # as of before the look
        self._index = {query.path: at for at, query in enumerate(queries)}
        self._stirred()
        self._states = [self._cache.stat_cached(query, plain, now, job) for query in queries]
        self._next = 0
        self._directories = {
            parent: self._cache.inode(parent, plain)
            for parent in {path.rpartition("/")[0] for path in self._index}
        }

    def _observe(
        self, queries: Sequence[PathQuery], now: float, plain: dict[str, int], job: Job
    ) -> None:
        states = self._states
        for at in self._due(len(queries), now):
            state = self._cache.stat_cached(queries[at], plain, now, job)
            if state is not states[at]:
                if states is self._states:
                    states = list(states)
                states[at] = state
        self._states = states

    def _due(self, count: int, now: float) -> Iterable[int]:
        """Those that were stirred, and the share that is due by now."""
        share = min(count, math.ceil(count * (now - self._looked) / SPREAD))
        due = {(self._next + step) % count for step in range(share)}
        self._next = (self._next + share) % max(count, 1)
        return due.union(self._stirred())

    def _stirred(self) -> Sequence[int]:
        stirred = [path for path in list(self._cache.stirred) if path in self._index]
        self._cache.stirred.difference_update(stirred)
        return [self._index[path] for path in stirred]
