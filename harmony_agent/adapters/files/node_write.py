"""Write one node to a path. What stands there must be what the caller expects.

Owner and mode of an old object stay, if the node names no others.

Synchronous; called in worker threads. How a write is durable stands in `posix.atomic`.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import ExitStack, suppress
from typing import Final

from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import AtomicWrite, Rename, sync
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.path_errors import Changed
from harmony_agent.adapters.posix.safe_path import ParentDir, RootedPaths
from harmony_agent.adapters.posix.stat_cache import fingerprint
from harmony_agent.topology.files import Attributes, FileSpec, StatFingerprint

_DEFAULT_MODE: Final = {"file": 0o644, "directory": 0o755}


class NodeWrite(AtomicWrite):
    """The atomic write of a `FileSpec`."""

    def __init__(
        self, tree: RootedPaths, path: str, node: FileSpec, rename: Rename = syscalls.renameat2
    ) -> None:
        self._node = node
        self._stack = ExitStack()
        self._place = self._stack.enter_context(tree.parent(path))
        super().__init__(self._place.fd, path, node.type, node.target, rename)

    def close(self) -> None:
        """Remove an unfinished object, and close the parent directory."""
        super().close()
        self._stack.close()

    def finish(self, expect: StatFingerprint | None, job: Job) -> None:
        """Set owner and mode, and move it to its path. Durable afterwards.

        Raises Changed if something else stands there than `expect`.
        """
        self.prepare(expect)
        self.sync()
        self.move(expect, job)
        sync(self.folder)

    # The steps of `finish`, for a caller that takes many through each of them.

    def prepare(self, expect: StatFingerprint | None) -> None:
        """Set owner and mode."""
        old = check(self._place, expect)
        self._set_owner(old)
        if self._node.type != "symlink":
            self._set_mode(old)

    def move(self, expect: StatFingerprint | None, job: Job) -> None:
        """Move it to its path. Durable once its folder is."""
        job.check()
        self._move(check(self._place, expect))
        self.landed()

    def _set_owner(self, old: os.stat_result | None) -> None:
        """Set the owner of the node; else the owner of the old object, if the agent may.

        Calls the system only where something changes.
        """
        now = self._place.stat(self.temp) if self.fd < 0 else os.fstat(self.fd)
        if now is None:
            raise Changed
        uid, gid = self._node.uid, self._node.gid
        if (uid is not None and uid != now.st_uid) or (gid is not None and gid != now.st_gid):
            self._chown(-1 if uid is None else uid, -1 if gid is None else gid)
        if old is not None and (uid is None or gid is None):
            keep = (
                -1 if uid is not None or old.st_uid == now.st_uid else old.st_uid,
                -1 if gid is not None or old.st_gid == now.st_gid else old.st_gid,
            )
            if keep != (-1, -1):
                with suppress(PermissionError):
                    self._chown(*keep)

    def _chown(self, uid: int, gid: int) -> None:
        if self.fd >= 0:
            os.fchown(self.fd, uid, gid)
        else:
            os.chown(self.temp, uid, gid, dir_fd=self.folder, follow_symlinks=False)

    def _set_mode(self, old: os.stat_result | None) -> None:
        """Set the mode of the node; else the mode of the old file; else the default.

        The setuid bits of an old file were for other content and are left out.
        """
        wanted = self._node.mode
        if wanted is not None:
            if stat.S_IMODE(os.fstat(self.fd).st_mode) != wanted:
                os.fchmod(self.fd, wanted)
            return
        same = old is not None and stat.S_ISREG(old.st_mode) and self._node.type == "file"
        mode = (
            stat.S_IMODE(old.st_mode) & 0o1777
            if old is not None and same
            else _DEFAULT_MODE[self._node.type]
        )
        try:
            os.fchmod(self.fd, mode)
        except PermissionError as error:
            if error.errno != errno.EPERM:  # which a file system without modes gives
                raise

    def _move(self, old: os.stat_result | None) -> None:
        """Move it to its path. Raises Changed if something appeared there meanwhile."""
        if old is None:
            try:
                self.appear()
            except (FileExistsError, NotADirectoryError):
                raise Changed from None
        elif stat.S_ISDIR(old.st_mode) or self._node.type == "directory":
            self.exchange(old)
        else:
            self.rename()


def check(place: ParentDir, expect: StatFingerprint | None) -> os.stat_result | None:
    """Return the status of the object at `place`. Raises Changed unless it is the expected one."""
    status = place.stat()
    if (None if status is None else fingerprint(status)) != expect:
        raise Changed
    return status


def set_attributes(place: ParentDir, attributes: Attributes, expect: StatFingerprint) -> bool:
    """Change mode and owner through a descriptor.

    False: the file has other names as well, and was left alone.
    """
    mode, uid, gid = attributes.mode, attributes.uid, attributes.gid
    check(place, expect)
    fd = _open_to_amend(place)
    try:
        status = os.fstat(fd)
        if fingerprint(status) != expect or not (
            stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)
        ):
            raise Changed
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            return False
        itself = f"/proc/self/fd/{fd}"  # for an O_PATH descriptor, which takes no fchmod
        if uid not in (None, status.st_uid) or gid not in (None, status.st_gid):
            os.chown(itself, -1 if uid is None else uid, -1 if gid is None else gid)
        if mode is not None and stat.S_IMODE(os.fstat(fd).st_mode) != mode:
            os.chmod(itself, mode)
        sync(fd)
        return True
    finally:
        os.close(fd)


def _open_to_amend(place: ParentDir) -> int:
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(place.name, os.O_RDONLY | flags, dir_fd=place.fd)
    except PermissionError:
        return os.open(place.name, os.O_PATH | flags, dir_fd=place.fd)
