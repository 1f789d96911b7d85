"""Change what is at a path, by atomic writes and backups, and tell the cache.

Synchronous; called in worker threads. Nothing is decided here on what should stand at a path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from harmony_agent.adapters.files.backups import Backups
from harmony_agent.adapters.files.node_write import NodeWrite, check, set_attributes
from harmony_agent.adapters.files.path_cache import PathCache
from harmony_agent.adapters.files.read import open_file, read_digest
from harmony_agent.adapters.posix.atomic import Rename, discard
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.path_errors import Changed, MissingParents, PathRefused
from harmony_agent.adapters.posix.safe_path import ParentDir, RootedPaths
from harmony_agent.topology.files import Attributes, FileSpec, PathError, StatFingerprint


class Writer:
    """Changes paths. A change is durable when its method returns.

    Each method raises Changed if something else stands there than expected.
    """

    def __init__(
        self,
        tree: RootedPaths,
        backups: Backups,
        path_states: PathCache,
        rename: Rename,
        parents_owner: tuple[int | None, int | None],
    ) -> None:
        self._paths = tree
        self._backups = backups
        self._cache = path_states
        self._rename = rename
        self._parents_owner = parents_owner

    def draft(self, path: str, node: FileSpec) -> NodeWrite:
        """Begin a write. The caller closes it in any case."""
        return NodeWrite(self._paths, path, node, self._rename)

    def fill(self, draft: NodeWrite, path: str, node: FileSpec, job: Job) -> None:
        """Write the content that the node holds or that was kept."""
        if node.backup:
            self._fill_from_backup(draft, path, node, job)
        elif node.content is not None:
            draft.write(node.content)

    @contextmanager
    def _drafting(self, path: str, node: FileSpec) -> Generator[NodeWrite, None, None]:
        draft = self.draft(path, node)
        try:
            yield draft
        finally:
            draft.close()
            self._cache.swept(path, clean=not draft.left_over)

    def _fill_from_backup(self, draft: NodeWrite, path: str, node: FileSpec, job: Job) -> None:
        lost = PathError(
            "FormerLost",
            f"cannot put back {path}: its copy former/{node.backup} isn't what was kept",
        )
        try:
            source = self._backups.read(node.backup)
        except FileNotFoundError:
            raise PathRefused(lost) from None
        try:
            if read_digest(source, job, draft.write) != node.digest:
                raise PathRefused(lost)
        finally:
            os.close(source)

    def set_attributes(
        self, path: str, attributes: Attributes, expect: StatFingerprint, job: Job
    ) -> None:
        """Change mode and owner."""
        with self._paths.parent(path) as place:
            if not set_attributes(place, attributes, expect):
                self._copy(place, attributes, expect, job)

    def _copy(
        self, place: ParentDir, attributes: Attributes, expect: StatFingerprint, job: Job
    ) -> None:
        """Replace a file that has other names by a copy: the other names may be somebody else's."""
        old = check(place, expect)
        if old is None:
            raise Changed
        node = FileSpec(
            type="file",
            mode=stat.S_IMODE(old.st_mode) if attributes.mode is None else attributes.mode,
            uid=attributes.uid,
            gid=attributes.gid,
        )
        source = open_file(place, old)
        try:
            with self._drafting(place.path, node) as draft:
                if read_digest(source, job, draft.write) is None:
                    raise Changed
                draft.finish(expect, job)
        finally:
            os.close(source)

    def sweep(self, path: str) -> None:
        """Remove an unfinished object beside it."""
        with suppress(MissingParents), self._changing(path) as place:
            discard(place.fd, place.temp)

    def make_parent(self, path: str, _job: Job) -> None:
        """Make a directory where nothing stands yet."""
        uid, gid = self._parents_owner
        draft = self.draft(path, FileSpec(type="directory", mode=0o755, uid=uid, gid=gid))
        try:
            with suppress(Changed):  # something is there already
                draft.finish(None, Job())
        finally:
            draft.close()

    def drop_parent(self, path: str, _job: Job) -> bool:
        """Remove an empty directory. False: there is one that holds something."""
        dropped = True
        with suppress(MissingParents, PathRefused), self._changing(path) as place:
            dropped = _drop(place)
        return dropped

    def back_up(
        self, path: str, backup: str, digest: str, expect: StatFingerprint, job: Job
    ) -> None:
        """Copy what is there below the state directory."""
        with self._paths.parent(path) as place:
            self._backups.back_up(place, backup, digest, expect, job)

    @contextmanager
    def _changing(self, path: str) -> Generator[ParentDir, None, None]:
        """The open parent of `path`; what is changed in it is durable afterwards. Raises
        MissingParents.
        """
        with self._paths.parent(path) as place:
            yield place
            try:
                place.sync()
            except OSError:
                self._cache.unsynced(path)
                raise


def _drop(place: ParentDir) -> bool:
    try:
        os.rmdir(place.name, dir_fd=place.fd)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            return False
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
    return True
