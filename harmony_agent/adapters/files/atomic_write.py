"""Drafts: what is to stand at a path is finished beside it under a temporary name, then renamed,
then made durable.

Synchronous; called in worker threads. A process that is killed at any point leaves what was there
or what is wanted, and perhaps a temporary name, which is the same for a path each time and so is
found and swept. Nothing that stands at the path is ever opened for writing, and no directory that
holds something goes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Final

from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.safe_path import Job, ParentDir, RootedPaths, fingerprint, sync
from harmony_agent.topology.files import Attributes, FileSpec, StatFingerprint

Rename = Callable[[str, str, int, int], bool]
"""`syscalls.renameat2` or the like; False where the file system can't."""
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEFAULT_MODE: Final = {"file": 0o644, "directory": 0o755}


class Changed(Exception):
    """Something else stands at the path than was expected; nothing was changed."""


class AtomicWrite:
    """One node on its way to its path. Close it in any case: what isn't finished then is
    removed.
    """

    def __init__(
        self, tree: RootedPaths, path: str, node: FileSpec, rename: Rename = syscalls.renameat2
    ) -> None:
        self._node = node
        self._rename = rename
        self._stack = ExitStack()
        self._fd = -1
        self._stands = False
        self.status: os.stat_result | None = None
        """Status of the object at the path, once `finish` has returned."""
        try:
            self._place = self._stack.enter_context(tree.parent(path))
            self._make()
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        """Append to the file."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def finish(self, expect: StatFingerprint | None, job: Job) -> None:
        """Give it mode and owner and put it at its path, if that still holds what was expected.
        Durable afterwards.
        """
        old = check(self._place, expect)
        self._own(old)
        if self._node.type != "symlink":
            self._chmod(old)
            os.fsync(self._fd)
        job.check()
        self._swap(check(self._place, expect))
        self._stands = False
        self.status = self._place.stat() if self._fd < 0 else os.fstat(self._fd)
        self._let_go()  # before the sync, so that the event of it is over when this is
        self._place.sync()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def close(self) -> None:
        """Remove what isn't finished, as far as that can be done, and let go of descriptors."""
        self._let_go()
        if self._stands:
            with suppress(OSError):
                discard(self._place, self._place.temp)
                self._stands = False
        self._stack.close()

    @property
    def left_over(self) -> bool:
        """After `close`: what isn't finished couldn't be removed."""
        return self._stands

    def _make(self) -> None:
        try:
            self._create()
        except FileExistsError:  # left by one that was killed
            discard(self._place, self._place.temp)
            self._create()

    def _create(self) -> None:
        place, temp = self._place, self._place.temp
        if self._node.type == "file":
            self._fd = os.open(temp, _CREATE, 0o600, dir_fd=place.fd)
            self._stands = True
        elif self._node.type == "directory":
            os.mkdir(temp, 0o700, dir_fd=place.fd)
            self._stands = True
            self._fd = os.open(temp, _DIRECTORY, dir_fd=place.fd)
        else:
            os.symlink(self._node.target, temp, dir_fd=place.fd)
            self._stands = True

    def _own(self, old: os.stat_result | None) -> None:
        """Set the owner: the desired one, else the previous one where the agent may.

        Skip the call if nothing changes.
        """
        now = self._place.stat(self._place.temp) if self._fd < 0 else os.fstat(self._fd)
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
        if self._fd >= 0:
            os.fchown(self._fd, uid, gid)
        else:
            os.chown(self._place.temp, uid, gid, dir_fd=self._place.fd, follow_symlinks=False)

    def _chmod(self, old: os.stat_result | None) -> None:
        """Its mode: as wanted; else as before without setuid bits, which were for other content;
        else the default.
        """
        wanted = self._node.mode
        if wanted is not None:
            if stat.S_IMODE(os.fstat(self._fd).st_mode) != wanted:
                os.fchmod(self._fd, wanted)
            return
        same = old is not None and stat.S_ISREG(old.st_mode) and self._node.type == "file"
        mode = (
            stat.S_IMODE(old.st_mode) & 0o1777
            if old is not None and same
            else _DEFAULT_MODE[self._node.type]
        )
        try:
            os.fchmod(self._fd, mode)
        except PermissionError as error:
            if error.errno != errno.EPERM:  # which a file system without modes gives
                raise

    def _swap(self, old: os.stat_result | None) -> None:
        """Into place, atomically. What appeared there meanwhile is not replaced."""
        place, temp = self._place, self._place.temp
        if old is None:
            self._appear()
        elif stat.S_ISDIR(old.st_mode) or self._node.type == "directory":
            self._exchange(old)
        else:
            os.rename(temp, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)

    def _appear(self) -> None:
        place, temp = self._place, self._place.temp
        try:
            if self._rename(temp, place.name, place.fd, syscalls.NOREPLACE):
                return
            if (
                self._node.type == "directory"
            ):  # rename replaces nothing but another empty directory by it
                os.rename(temp, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)
                return
            os.link(
                temp, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd, follow_symlinks=False
            )
        except (FileExistsError, NotADirectoryError):
            raise Changed from None
        os.unlink(temp, dir_fd=place.fd)

    def _exchange(self, old: os.stat_result) -> None:
        """A directory for something else, or the other way round: one rename can't do that."""
        place, temp = self._place, self._place.temp
        if self._rename(temp, place.name, place.fd, syscalls.EXCHANGE):
            try:
                discard(place, temp)
            except OSError:
                self._rename(
                    temp, place.name, place.fd, syscalls.EXCHANGE
                )  # it came to hold something: back
                raise
            return
        erase(place, old)
        os.rename(temp, place.name, src_dir_fd=place.fd, dst_dir_fd=place.fd)


def check(place: ParentDir, expect: StatFingerprint | None) -> os.stat_result | None:
    """Return the status of the object at `place`. Raises Changed unless it is the expected one."""
    status = place.stat()
    if (None if status is None else fingerprint(status)) != expect:
        raise Changed
    return status


def erase(place: ParentDir, status: os.stat_result) -> None:
    """Remove the name of what `status` describes; a directory only when it is empty."""
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(place.name, dir_fd=place.fd)
    else:
        os.unlink(place.name, dir_fd=place.fd)


def discard(place: ParentDir, temp: str) -> None:
    """Remove an unfinished thing of an agent's by its name; an empty directory may be one."""
    status = place.stat(temp)
    if status is None:
        return
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(temp, dir_fd=place.fd)
    else:
        os.unlink(temp, dir_fd=place.fd)


def set_attributes(place: ParentDir, attributes: Attributes, expect: StatFingerprint) -> bool:
    """Change mode and owner through a descriptor. False: it has other names as well, and was left
    alone.
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
        itself = f"/proc/self/fd/{fd}"  # an O_PATH descriptor takes no fchmod; this leads to its very object
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
