"""Change what is at a path, by atomic writes and backups, and tell the cache.

Synchronous; called in worker threads. Nothing is decided here on what should stand at a path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress

from harmony_agent.adapters import filedraft
from harmony_agent.adapters.filedraft import Changed, Draft, Rename
from harmony_agent.adapters.filelook import open_file, read_digest
from harmony_agent.adapters.filesight import Sights
from harmony_agent.adapters.filetree import Job, MissingParents, Obstacle, Place, Tree
from harmony_agent.adapters.formers import Formers
from harmony_agent.topology.files import Attributes, Mark, Node, Trouble


class Writer:
    """A change is durable when its method returns. Each raises Changed where something else stands there."""

    def __init__(self, tree: Tree, formers: Formers, sights: Sights, rename: Rename) -> None:
        self._tree = tree
        self._formers = formers
        self._sights = sights
        self._rename = rename

    def put(self, path: str, node: Node, expect: Mark | None, job: Job) -> None:
        """Put the node there, with the content that it holds or that was kept."""
        with self._drafting(path, node) as draft:
            if node.former:
                self._fill_from_former(draft, path, node, job)
            elif node.content is not None:
                draft.write(node.content)
            self.finish(draft, path, node, expect, job)

    def draft(self, path: str, node: Node) -> Draft:
        """Begin one whose content comes bit by bit; `finish` puts it there, and it is to be closed in any case."""
        return Draft(self._tree, path, node, self._rename)

    def finish(self, draft: Draft, path: str, node: Node, expect: Mark | None, job: Job) -> None:
        """Put what was drafted at its path."""
        try:
            draft.finish(expect, job)
        except OSError:
            self._sights.unsynced(path)
            raise
        if node.type == "file" and draft.status is not None:
            self._sights.learn(path, draft.status, node.digest)

    @contextmanager
    def _drafting(self, path: str, node: Node) -> Generator[Draft, None, None]:
        draft = self.draft(path, node)
        try:
            yield draft
        finally:
            draft.close()
            self._sights.swept(path, clean=not draft.left_over)

    def _fill_from_former(self, draft: Draft, path: str, node: Node, job: Job) -> None:
        lost = Trouble("FormerLost", f"cannot put back {path}: its copy former/{node.former} isn't what was kept")
        try:
            source = self._formers.read(node.former)
        except FileNotFoundError:
            raise Obstacle(lost) from None
        try:
            if read_digest(source, job, draft.write) != node.digest:
                raise Obstacle(lost)
        finally:
            os.close(source)

    def amend(self, path: str, attributes: Attributes, expect: Mark, job: Job) -> None:
        """Change mode and owner."""
        with self._tree.parent(path) as place:
            if not filedraft.amend(place, attributes, expect):
                self._copy(place, attributes, expect, job)

    def _copy(self, place: Place, attributes: Attributes, expect: Mark, job: Job) -> None:
        """An inode of its own for a file whose other names belong to others."""
        old = filedraft.check(place, expect)
        if old is None:
            raise Changed
        node = Node(
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

    def remove(self, path: str, expect: Mark) -> None:
        """Take away what is there; a directory only when it is empty."""
        with suppress(MissingParents), self._changing(path) as place:
            status = filedraft.check(place, expect)
            if status is not None:
                filedraft.erase(place, status)

    def sweep(self, path: str) -> None:
        """Take away what is unfinished beside it."""
        with suppress(MissingParents), self._changing(path) as place:
            filedraft.discard(place, place.temp)

    def make_parent(self, path: str, _job: Job) -> None:
        """Make a directory where nothing stands yet."""
        draft = self.draft(path, Node(type="directory", mode=0o755))
        try:
            with suppress(Changed):  # something is there already
                draft.finish(None, Job())
        finally:
            draft.close()

    def drop_parent(self, path: str, _job: Job) -> bool:
        """Remove an empty directory. False: there is one that holds something."""
        dropped = True
        with suppress(MissingParents, Obstacle), self._changing(path) as place:
            dropped = _drop(place)
        return dropped

    def keep(self, path: str, former: str, digest: str, expect: Mark, job: Job) -> None:
        """Copy what is there below the state directory."""
        with self._tree.parent(path) as place:
            self._formers.keep(place, former, digest, expect, job)

    @contextmanager
    def _changing(self, path: str) -> Generator[Place, None, None]:
        """The open parent of `path`; what is changed in it is durable afterwards. Raises MissingParents."""
        with self._tree.parent(path) as place:
            yield place
            try:
                place.sync()
            except OSError:
                self._sights.unsynced(path)
                raise


def _drop(place: Place) -> bool:
    try:
        os.rmdir(place.name, dir_fd=place.fd)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
            return False
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise
    return True
