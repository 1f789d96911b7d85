"""The device's files, for the kind File. Each call runs in a worker thread, within a time.

`path_cache` observes, `write` changes, `backups` copies. Nothing here decides what should stand at
a path.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio

from harmony_agent.adapters.files.backups import Backups
from harmony_agent.adapters.files.listing import Listing
from harmony_agent.adapters.files.path_cache import PathCache
from harmony_agent.adapters.files.path_sets import Look, PathSets, Put, Removal
from harmony_agent.adapters.files.read import Hasher
from harmony_agent.adapters.files.stream import fill
from harmony_agent.adapters.files.write import Writer
from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import Rename
from harmony_agent.adapters.posix.executor import BoundedExecutor, Job
from harmony_agent.adapters.posix.inotify import Watcher
from harmony_agent.adapters.posix.listeners import Listeners
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.adapters.posix.safe_path import RootedPaths
from harmony_agent.adapters.posix.together import Batch, Together
from harmony_agent.core.errors import Transient
from harmony_agent.topology import Clock
from harmony_agent.topology.files import (
    Attributes,
    Fetch,
    FileSpec,
    PathError,
    PathQuery,
    PathState,
    StatFingerprint,
)

T = TypeVar("T")
_LOOK_SECONDS: Final = 30.0
_WORK_SECONDS: Final = 120.0
_FRESH: Final = 0.5
"""Seconds for which the look that ends a put counts as a new one, if no event comes: a pass comes
to the last file of a large set that late."""


class LocalFiles:
    """Implements `topology.files.Files` below `roots` and at `singles`; copies of former files go
    below `state_dir`.

    `rename` is renameat2, or in tests one that stands for a file system without it. `keyed` makes
    the hash of what holds a secret.
    """

    def __init__(
        self,
        roots: Sequence[str],
        state_dir: str,
        clock: Clock,
        *,
        singles: Sequence[str] = (),
        parents_owner: tuple[int | None, int | None] = (None, None),
        rename: Rename = syscalls.renameat2,
        keyed: Hasher = hashlib.sha256,
    ) -> None:
        self._paths = RootedPaths(roots, singles)
        self._backups = Backups(state_dir)
        self._watcher = Watcher()
        self._cache = PathCache(self._paths, self._backups, self._watcher, clock, keyed)
        self._writer = Writer(self._paths, self._backups, self._cache, rename, parents_owner)
        self._threads = BoundedExecutor(transient)
        sets = PathSets(self._paths, self._writer, self._cache, clock)
        self._puts = Together(self._threads, sets.put, sets.close_put)
        self._removals = Together(self._threads, sets.remove, sets.close_removal)
        self._looks = Together(self._threads, self._look)
        self._clock = clock
        self._putting: set[str] = set()
        self._heard: dict[str, float] = {}
        self._fresh: dict[str, tuple[float, PathState]] = {}
        self._listeners = Listeners[str]()
        self._listings: dict[str, Listing] = {}
        self._grouped: tuple[
            Sequence[PathQuery], Mapping[str, Sequence[PathQuery]], Sequence[str]
        ] = ((), {}, ())

    async def stat_exact(self, query: PathQuery) -> PathState:
        """Implement `Files.stat_exact`.

        Right after a put the thread of that put has observed the path already.
        """
        began, fresh = self._fresh.pop(query.path, (0.0, None))
        if (
            fresh is not None
            and self._clock.monotonic() - began < _FRESH
            and self._cache.query(query.path) == query
        ):
            return fresh
        try:
            root, doing = self._paths.root_of(query.path) or "", f"look at {query.path}"
            return await self._looks.run(root, query.path, doing, _LOOK_SECONDS, query)
        except Transient as error:  # it hangs
            return PathState(query.path, error=PathError(error.reason, str(error), error.phase))

    def _look(self, batch: Batch[PathQuery, PathState]) -> None:
        batch.each(self._cache.stat_exact)

    async def stat_cached(self, queries: Sequence[PathQuery]) -> Sequence[PathState]:
        """Implement `Files.stat_cached`.

        Each root has a thread of its own, because one root may hang.
        """
        inodes: dict[str, int] = {}
        pools, paths = self._by_pool(queries)
        found = await asyncio.gather(
            *(self._stat_cached(root, group, inodes) for root, group in pools.items())
        )
        path_states = found[0] if len(found) == 1 else _in_order(queries, found)
        self._cache.retain(paths, inodes)
        for path in self._fresh.keys() - set(paths) if self._fresh else ():
            self._fresh.pop(path, None)  # no Score names it any more
        return path_states

    def _by_pool(
        self, queries: Sequence[PathQuery]
    ) -> tuple[Mapping[str, Sequence[PathQuery]], Sequence[str]]:
        """Group the queries by root, the same sequences for the same queries; and their paths."""
        if self._grouped[0] is not queries and self._grouped[0] != queries:
            pools: dict[str, list[PathQuery]] = {}
            for query in queries:
                pools.setdefault(self._paths.root_of(query.path) or "", []).append(query)
            self._grouped = queries, pools, [query.path for query in queries]
        return self._grouped[1], self._grouped[2]

    async def _stat_cached(
        self, root: str, queries: Sequence[PathQuery], inodes: dict[str, int]
    ) -> Sequence[PathState]:
        pool, doing = f"list:{root}", f"look through {root or '/'}"
        listing = self._listings.get(root)
        if listing is None:
            listing = self._listings[root] = Listing(self._cache, self._watcher, self._clock)
        look = partial(listing.look, queries)
        try:
            path_states, plain = await self._threads.run(pool, pool, doing, _LOOK_SECONDS, look)
        except Transient as error:
            hung = PathError(error.reason, str(error), error.phase)
            return [PathState(query.path, error=hung) for query in queries]
        inodes.update(plain)
        return path_states

    async def put(self, path: str, node: FileSpec, expect: StatFingerprint | None) -> None:
        """Implement `Files.put`."""
        if node.fetch is not None:
            await self._put_stream(path, node, node.fetch, expect)
        else:
            self._putting.add(path)
            try:
                look = await self._put(Put(path, expect, node=node))
                if look is not None:
                    self._fresh[path] = look
            finally:
                self._putting.discard(path)
                self._tell_what_came_later(path)

    async def _put(self, put: Put) -> Look | None:
        root, doing = self._paths.root_of(put.path) or "", f"write {put.path}"
        return await self._puts.run(root, put.path, doing, _WORK_SECONDS, put)

    def _tell_what_came_later(self, path: str) -> None:
        """Pass on an event that came during a put, if it may be of somebody else.

        The look that ends the put has seen whatever an earlier event is about.
        """
        heard, looked = self._heard.pop(path, None), self._fresh.get(path)
        if heard is not None and (looked is None or heard >= looked[0]):
            self._hear(path)

    def _hear(self, path: str) -> None:
        if path in self._putting:
            self._heard[path] = self._clock.monotonic()
            return
        self._fresh.pop(path, None)
        self._cache.stirred.add(path)
        self._listeners.tell(path)

    async def _put_stream(
        self, path: str, node: FileSpec, fetch: Fetch, expect: StatFingerprint | None
    ) -> None:
        draft = await self._run_in_thread(
            "write", path, lambda _job: self._writer.draft(path, node)
        )
        try:
            await fill(draft, path, node, fetch, partial(self._run_in_thread, "write", path))
            await self._put(Put(path, expect, node=node, draft=draft))
        finally:
            # It may hang: the next start sweeps it.
            with anyio.CancelScope(shield=True), suppress(Transient):
                await self._run_in_thread("write", path, lambda _job: draft.close())
            self._cache.swept(path, clean=not draft.left_over)

    async def set_attributes(
        self, path: str, attributes: Attributes, expect: StatFingerprint
    ) -> None:
        """Implement `Files.set_attributes`."""
        await self._run_in_thread(
            "change mode or owner of",
            path,
            lambda job: self._writer.set_attributes(path, attributes, expect, job),
        )

    async def remove(self, path: str, expect: StatFingerprint) -> None:
        """Implement `Files.remove`."""
        root, removal = self._paths.root_of(path) or "", Removal(path, expect)
        await self._removals.run(root, path, f"remove {path}", _WORK_SECONDS, removal)

    async def sweep(self, path: str) -> None:
        """Implement `Files.sweep`."""
        await self._run_in_thread(
            "remove what is unfinished beside", path, lambda _job: self._writer.sweep(path)
        )
        self._cache.swept(path, clean=True)

    async def make_parents(self, paths: Sequence[str]) -> None:
        """Implement `Files.make_parents`."""
        for path in paths:
            await self._run_in_thread("make", path, partial(self._writer.make_parent, path))

    async def drop_parents(self, paths: Sequence[str]) -> Sequence[str]:
        """Implement `Files.drop_parents`."""
        return [
            path
            for path in sorted(paths, key=len, reverse=True)
            if not await self._run_in_thread(
                "remove", path, partial(self._writer.drop_parent, path)
            )
        ]

    async def back_up(self, path: str, backup: str, digest: str, expect: StatFingerprint) -> None:
        """Implement `Files.back_up`."""
        await self._run_in_thread(
            "keep a copy of",
            path,
            lambda job: self._writer.back_up(path, backup, digest, expect, job),
        )

    async def try_owner(self, path: str, uid: int, gid: int) -> None:
        """Implement `Files.try_owner`."""
        await self._run_in_thread(
            "keep the owner of", path, lambda _job: self._backups.try_owner(uid, gid)
        )

    async def forget(self, backup: str) -> None:
        """Implement `Files.forget`."""
        await self._threads.run(
            "",
            f"former/{backup}",
            f"delete former/{backup}",
            _LOOK_SECONDS,
            lambda _job: self._backups.forget(backup),
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Implement `Files.watch`."""
        with self._listeners.listening(changed):
            await self._watcher.run(self._hear)

    async def close(self) -> None:
        """Implement `Files.close`."""
        self._watcher.close()

    async def _run_in_thread(
        self, verb: str, path: str, work: Callable[[Job], T], seconds: float = _WORK_SECONDS
    ) -> T:
        return await self._threads.run(
            self._paths.root_of(path) or "", path, f"{verb} {path}", seconds, work
        )


def _in_order(
    queries: Sequence[PathQuery], found: Sequence[Sequence[PathState]]
) -> list[PathState]:
    by_path = {path_state.path: path_state for group in found for path_state in group}
    return [by_path[query.path] for query in queries]
