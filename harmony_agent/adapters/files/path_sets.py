"""Change many paths at once, each with an outcome of its own.

Nodes are all written, then synced, then moved to their paths, then their folders are synced. So no
name ever leads to content that isn't on the disk, and a set costs as few syncs as one node.

Synchronous; called in worker threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TypeVar

from harmony_agent.adapters.files.node_write import NodeWrite, check
from harmony_agent.adapters.files.path_cache import PathCache
from harmony_agent.adapters.files.write import Writer
from harmony_agent.adapters.posix.atomic import remove, sync
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.path_errors import MissingParents
from harmony_agent.adapters.posix.safe_path import RootedPaths
from harmony_agent.adapters.posix.syncing import FEW, sync_all, sync_each
from harmony_agent.adapters.posix.together import Batch
from harmony_agent.topology import Clock
from harmony_agent.topology.files import FileSpec, PathState, StatFingerprint

Look = tuple[float, PathState]
"""A look at a path, and the monotonic time at which it began."""
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Change:
    """A change of the entry at a path. `folder` is an open descriptor, -1 where it has none."""

    path: str
    expect: StatFingerprint | None
    folder: int = -1
    place: tuple[int, int] = (0, 0)
    """file system and inode of the folder"""
    changed: bool = False
    settled: bool = False
    """the folder is on the disk since it was changed"""

    def opened(self, folder: int) -> None:
        """Note the open folder."""
        status = os.fstat(folder)
        self.folder, self.place = folder, (status.st_dev, status.st_ino)


@dataclass(eq=False, slots=True)
class Put(Change):
    """A node on its way to a path. With a `draft` its content is written already."""

    node: FileSpec = field(kw_only=True)
    draft: NodeWrite | None = None
    written: bool = False
    """its content is on the disk"""
    unwritten: OSError | None = None
    """the error of its sync, which the kernel tells of once"""

    @property
    def drafted(self) -> NodeWrite:
        """The draft, once it is made."""
        if self.draft is None:
            raise RuntimeError(f"no draft of {self.path} yet")
        return self.draft


@dataclass(eq=False, slots=True)
class Removal(Change):
    """An object on its way off the disk; a directory only when it is empty."""

    parent: ExitStack = field(default_factory=ExitStack)


class PathSets:
    """Takes sets of changes below the roots of `paths` through their stages."""

    def __init__(self, paths: RootedPaths, writer: Writer, cache: PathCache, clock: Clock) -> None:
        self._paths, self._writer, self._cache, self._clock = paths, writer, cache, clock

    def put(self, batch: Batch[Put, Look | None]) -> None:
        """Put all of them. The result is a look at the path; None where nobody ever asked for one."""
        batch.each(self._draft)
        batch.sets(_file_system, _sync_together)
        batch.each(_sync_alone)
        batch.each(_move)
        _settle(batch)
        batch.each(self._look)

    def remove(self, batch: Batch[Removal, None]) -> None:
        """Remove all of them. One whose parent is gone is gone as well."""
        batch.each(self._remove)
        _settle(batch)

    def close_put(self, put: Put) -> None:
        """Give back what it holds."""
        draft, put.draft = put.draft, None
        if draft is not None:
            draft.close()
            self._cache.swept(put.path, clean=not draft.left_over)
        self._close(put)

    def close_removal(self, removal: Removal) -> None:
        """Give back what it holds."""
        removal.parent.close()
        self._close(removal)

    def _close(self, change: Change) -> None:
        if change.changed and not change.settled:
            self._cache.unsynced(change.path)

    def _draft(self, put: Put, job: Job) -> None:
        if put.draft is None:
            put.draft = self._writer.draft(put.path, put.node)
            self._writer.fill(put.draft, put.path, put.node, job)
        put.draft.prepare(put.expect)
        put.opened(put.draft.folder)

    def _look(self, put: Put, job: Job) -> Look | None:
        draft = put.drafted
        if put.node.type == "file" and draft.status is not None:
            self._cache.learn(put.path, draft.status, put.node.digest)
        query = self._cache.query(put.path)
        began = self._clock.monotonic()
        return None if query is None else (began, self._cache.stat_exact(query, job))

    def _remove(self, removal: Removal, job: Job) -> None:
        try:
            place = removal.parent.enter_context(self._paths.parent(removal.path))
        except MissingParents:
            return
        removal.opened(place.fd)
        job.check()
        status = check(place, removal.expect)
        if status is not None:
            remove(place.fd, place.name, status)
        removal.changed = True


def _file_system(change: Change) -> int:
    return change.place[0]


def _sync_together(puts: Sequence[Put]) -> None:
    """Make the content of all durable by one call, where that is worth it, else side by side."""
    size = sum(len(put.node.content or b"") for put in puts)
    if sync_all(puts[0].folder, len(puts), size):
        for put in puts:
            put.written = True
    elif len(puts) > FEW:
        files = [put for put in puts if put.drafted.fd >= 0]
        errors = sync_each([put.drafted.fd for put in files])
        for put, error in zip(files, errors, strict=True):
            put.written, put.unwritten = error is None, error


def _sync_alone(put: Put, job: Job) -> None:
    del job
    if put.unwritten is not None:
        raise put.unwritten
    if not put.written:
        put.drafted.sync()


def _move(put: Put, job: Job) -> None:
    put.drafted.move(put.expect, job)
    put.changed = True


def _settle(batch: Batch[Put, T] | Batch[Removal, T]) -> None:
    """Make the folders durable: many by one call, else each once."""
    batch.sets(_file_system, _sync_folders)
    batch.sets(lambda change: change.place, _sync_folder)


def _sync_folders(changes: Sequence[Change]) -> None:
    folders = {change.place for change in changes if change.changed}
    if sync_all(changes[0].folder, len(folders), 0):
        for change in changes:
            change.settled = True


def _sync_folder(changes: Sequence[Change]) -> None:
    if any(change.changed and not change.settled for change in changes):
        sync(changes[0].folder)
    for change in changes:
        change.settled = True
