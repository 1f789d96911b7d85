"""The device's files for the kind File: each call is one hop into a worker thread, with a time of its own.

What is done there stands in filesight (looking), filewriter (changing) and formers (copies). Nothing is decided here on
what should stand at a path.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio

from harmony_agent.adapters import linux
from harmony_agent.adapters.filedraft import Draft, Rename
from harmony_agent.adapters.filesight import Sights
from harmony_agent.adapters.filetree import Job, Tree
from harmony_agent.adapters.filewriter import Writer
from harmony_agent.adapters.formers import Formers
from harmony_agent.adapters.inotify import Watcher
from harmony_agent.adapters.threads import Threads
from harmony_agent.core.errors import Transient
from harmony_agent.topology import Clock
from harmony_agent.topology.files import MAX_READ, Attributes, Fetch, Mark, Node, Sight, Spot, Trouble

T = TypeVar("T")
_LOOK_SECONDS: Final = 30.0
_WORK_SECONDS: Final = 120.0
_FRESH: Final = 0.05
"""Seconds for which the look that ends a put is as good as another."""
_PIECE: Final = 1 << 20
_MISMATCH_SECONDS: Final = 60.0
"""Until an object of another content than the Score says is fetched again: somebody has to put the right one there."""


class LocalFiles:
    """Implements `topology.files.Files` below `roots`; copies of former files go below `state_dir`.

    `rename` is renameat2, or in tests one that stands for a file system without it.
    """

    def __init__(self, roots: Sequence[str], state_dir: str, clock: Clock, *, rename: Rename = linux.renameat2) -> None:
        self._tree = Tree(roots)
        self._formers = Formers(state_dir)
        self._watcher = Watcher()
        self._sights = Sights(self._tree, self._formers, self._watcher, clock)
        self._writer = Writer(self._tree, self._formers, self._sights, rename)
        self._threads = Threads()
        self._clock = clock
        self._putting: set[str] = set()
        self._heard: dict[str, float] = {}
        self._fresh: dict[str, tuple[float, Sight]] = {}
        self._changed: Callable[[str], None] = lambda _path: None

    async def look(self, spot: Spot) -> Sight:
        """Implement `Files.stat_exact`.

        Right after a put the thread of that put has observed the path already.
        """
        began, fresh = self._fresh.pop(spot.path, (0.0, None))
        if fresh is not None and self._clock.monotonic() - began < _FRESH and self._sights.spot(spot.path) == spot:
            return fresh
        try:
            return await self._hop("look at", spot.path, lambda job: self._sights.look(spot, job), _LOOK_SECONDS)
        except Transient as error:  # it hangs
            return Sight(spot.path, trouble=Trouble(error.reason, str(error), error.phase))

    async def glance(self, spots: Sequence[Spot]) -> Sequence[Sight]:
        """Implement `Files.stat_cached`.

        Each root has a thread of its own, because one root may hang.
        """
        lanes = self._lanes(spots)
        found: dict[str, Sight] = {}
        inodes: dict[str, int] = {}
        if len(lanes) == 1:
            (root,) = lanes
            sights = await self._glance(root, spots, inodes)
        else:
            async with anyio.create_task_group() as tasks:
                for root, group in lanes.items():
                    tasks.start_soon(self._glance_into, found, root, group, inodes)
            sights = [found[spot.path] for spot in spots]
        paths = [spot.path for spot in spots]
        self._sights.retain(paths, inodes)
        if self._fresh:
            for path in set(self._fresh).difference(paths):  # put back there, and nobody's to look at any more
                self._fresh.pop(path, None)
        return sights

    def _lanes(self, spots: Sequence[Spot]) -> Mapping[str, Sequence[Spot]]:
        """The spots by their roots."""
        if len(self._tree.roots) == 1:
            return {self._tree.roots[0]: spots}
        lanes: dict[str, list[Spot]] = {}
        for spot in spots:
            lanes.setdefault(self._tree.root_of(spot.path) or "", []).append(spot)
        return lanes

    async def _glance_into(
        self, found: dict[str, Sight], root: str, spots: Sequence[Spot], inodes: dict[str, int]
    ) -> None:
        found.update({sight.path: sight for sight in await self._glance(root, spots, inodes)})

    async def _glance(self, root: str, spots: Sequence[Spot], inodes: dict[str, int]) -> Sequence[Sight]:
        doing = f"look through {root or '/'}"
        try:
            sights, plain = await self._threads.run(
                f"glance:{root}", f"glance:{root}", doing, _LOOK_SECONDS, lambda job: self._sights.glance(spots, job)
            )
        except Transient as error:
            hung = Trouble(error.reason, str(error), error.phase)
            return [Sight(spot.path, trouble=hung) for spot in spots]
        inodes.update(plain)
        return sights

    async def put(self, path: str, node: Node, expect: Mark | None) -> None:
        """Implement `Files.put`."""
        if node.fetch is not None:
            await self._put_stream(path, node, node.fetch, expect)
        else:
            self._putting.add(path)
            try:
                await self._hop("write", path, lambda job: self._put(path, node, expect, job))
            finally:
                self._putting.discard(path)
                self._tell_what_came_later(path)

    def _tell_what_came_later(self, path: str) -> None:
        """The events of our own put are no news, nor is what its look saw; one after that look began may be."""
        heard, looked = self._heard.pop(path, None), self._fresh.get(path)
        if heard is not None and (looked is None or heard >= looked[0]):
            self._hear(path)

    def _hear(self, path: str) -> None:
        if path in self._putting:
            self._heard[path] = self._clock.monotonic()
            return
        self._fresh.pop(path, None)
        self._changed(path)

    def _put(self, path: str, node: Node, expect: Mark | None, job: Job) -> None:
        self._writer.put(path, node, expect, job)
        spot = self._sights.spot(path)
        if spot is not None:
            began = self._clock.monotonic()
            self._fresh[path] = (began, self._sights.look(spot, job))

    async def _put_stream(self, path: str, node: Node, fetch: Fetch, expect: Mark | None) -> None:
        draft = await self._hop("write", path, lambda _job: self._writer.draft(path, node))
        try:
            await self._fill_from_stream(draft, path, node, fetch)
            await self._hop("write", path, lambda job: self._writer.finish(draft, path, node, expect, job))
        finally:
            with anyio.CancelScope(shield=True), suppress(Transient):  # hangs: the next start sweeps it
                await self._hop("write", path, lambda _job: draft.close())
            self._sights.swept(path, clean=not draft.left_over)

    async def _fill_from_stream(self, draft: Draft, path: str, node: Node, fetch: Fetch) -> None:
        hashed = hashlib.sha256()
        held = bytearray()
        left = MAX_READ

        def flush() -> None:
            hashed.update(held)
            draft.write(bytes(held))
            held.clear()

        async def write(data: bytes) -> None:
            nonlocal left
            left -= len(data)
            if left < 0:
                raise _mismatch(path, "is larger than 64 MiB")
            held.extend(data)
            if len(held) >= _PIECE:
                await self._hop("write", path, lambda _job: flush())

        await fetch(write)
        await self._hop("write", path, lambda _job: flush())
        if "sha256:" + hashed.hexdigest() != node.digest:
            raise _mismatch(path, "hasn't the digest that the Score says")

    async def amend(self, path: str, attributes: Attributes, expect: Mark) -> None:
        """Implement `Files.amend`."""
        await self._hop("change mode or owner of", path, lambda job: self._writer.amend(path, attributes, expect, job))

    async def remove(self, path: str, expect: Mark) -> None:
        """Implement `Files.remove`."""
        await self._hop("remove", path, lambda _job: self._writer.remove(path, expect))

    async def sweep(self, path: str) -> None:
        """Implement `Files.sweep`."""
        await self._hop("remove what is unfinished beside", path, lambda _job: self._writer.sweep(path))
        self._sights.swept(path, clean=True)

    async def make_parents(self, paths: Sequence[str]) -> None:
        """Implement `Files.make_parents`."""
        for path in paths:
            await self._hop("make", path, partial(self._writer.make_parent, path))

    async def drop_parents(self, paths: Sequence[str]) -> Sequence[str]:
        """Implement `Files.drop_parents`."""
        return [
            path
            for path in sorted(paths, key=len, reverse=True)
            if not await self._hop("remove", path, partial(self._writer.drop_parent, path))
        ]

    async def keep(self, path: str, former: str, digest: str, expect: Mark) -> None:
        """Implement `Files.keep`."""
        await self._hop("keep a copy of", path, lambda job: self._writer.keep(path, former, digest, expect, job))

    async def try_owner(self, path: str, uid: int, gid: int) -> None:
        """Implement `Files.try_owner`."""
        await self._hop("keep the owner of", path, lambda _job: self._formers.try_owner(uid, gid))

    async def forget(self, former: str) -> None:
        """Implement `Files.forget`."""
        await self._threads.run(
            "", f"former/{former}", f"delete former/{former}", _LOOK_SECONDS, lambda _job: self._formers.forget(former)
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Implement `Files.watch`."""
        self._changed = changed
        await self._watcher.run(self._hear)

    async def close(self) -> None:
        """Implement `Files.close`."""
        self._watcher.close()

    async def _hop(self, verb: str, path: str, work: Callable[[Job], T], seconds: float = _WORK_SECONDS) -> T:
        return await self._threads.run(self._tree.root_of(path) or "", path, f"{verb} {path}", seconds, work)


def _mismatch(path: str, how: str) -> Transient:
    return Transient(
        "DigestMismatch",
        f"cannot write {path}: the object {how}; put the right one into the object store",
        delay=_MISMATCH_SECONDS,
    )
