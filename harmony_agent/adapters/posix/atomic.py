"""Durable writes: a new object is made under a temporary name, synced, and moved to its path in one
step.

Synchronous; called in worker threads. A process that is killed leaves the old object or the new one
at the path, and perhaps a temporary name beside it. A path has the same temporary name each time.
The next write finds it and removes it. Nothing that stands at a path is opened for writing, and no
directory that holds something is removed.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from harmony_agent.adapters.posix import syscalls
from harmony_agent.topology.files import TEMP_PREFIX, TEMP_SUFFIX, NodeType

Check = Callable[[], None]
"""Called before a change becomes visible. Raises if the change must not happen any more."""
Rename = Callable[[str, str, int, int], bool]
"""`syscalls.renameat2` or the like; False if the file system can't."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def temp_name(path: str) -> str:
    """Return the temporary name beside `path`. Its length is fixed: a long name leaves no room."""
    return TEMP_PREFIX + hashlib.sha256(os.fsencode(path)).hexdigest()[:16] + TEMP_SUFFIX


def is_temp(name: str) -> bool:
    """Return whether it is a name that only an agent gives."""
    return name.startswith(TEMP_PREFIX) and name.endswith(TEMP_SUFFIX)


def sync(fd: int) -> None:
    """Fsync, if the descriptor and the file system allow it."""
    try:
        os.fsync(fd)
    except OSError as error:
        # An O_PATH descriptor, because permissions allowed no more; a file system without fsync.
        if error.errno not in (errno.EBADF, errno.EINVAL):
            raise


def open_directory(path: str, within: int | None = None) -> int:
    """Open a directory; with `within`, by its name in that directory and through no link."""
    # Without `within` the last component may be a link: it is the administrator's choice.
    follow = 0 if within is None else os.O_NOFOLLOW
    return os.open(path, _FOLDER | follow, dir_fd=within)


@contextmanager
def in_directory(path: str, within: int | None = None) -> Iterator[int]:
    """Open a directory for a `with`."""
    fd = open_directory(path, within)
    try:
        yield fd
    finally:
        os.close(fd)


def sync_directory(path: str) -> None:
    """Make creations, renames and removals in a directory durable."""
    with in_directory(path) as fd:
        sync(fd)


def make_directory(path: str, mode: int = 0o755) -> None:
    """Make a directory and those above it that are missing, durably."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        make_directory(above, mode)
    with suppress(FileExistsError):
        os.mkdir(path, mode)
    sync_directory(above)


class AtomicWrite:
    """A new object for one path. Close it in any case: an unfinished object is removed then."""

    def __init__(
        self,
        folder: int,
        path: str,
        kind: NodeType = "file",
        target: str = "",
        rename: Rename = syscalls.renameat2,
    ) -> None:
        """Make it under its temporary name. `folder` is the open directory of the last name in
        `path`; it stays open. `target` is that of a symlink.
        """
        self.folder = folder
        self.name = os.path.basename(path)
        self.temp = temp_name(path)
        self.fd = -1
        """Descriptor of the file or directory; -1 for a symlink."""
        self.left_over = False
        """The temporary name stands. After `close`: it couldn't be removed."""
        self.status: os.stat_result | None = None
        """Status of the object at the path, after it has moved there."""
        self._kind = kind
        self._target = target
        self._rename = rename
        try:
            self._make()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _make(self) -> None:
        try:
            self._create()
        except FileExistsError:  # left by an agent that was killed
            discard(self.folder, self.temp)
            self._create()

    def _create(self) -> None:
        if self._kind == "file":
            self.fd = os.open(self.temp, _CREATE, 0o600, dir_fd=self.folder)
            self.left_over = True
        elif self._kind == "directory":
            os.mkdir(self.temp, 0o700, dir_fd=self.folder)
            self.left_over = True
            self.fd = open_directory(self.temp, self.folder)
        else:
            os.symlink(self._target, self.temp, dir_fd=self.folder)
            self.left_over = True

    def write(self, data: bytes) -> None:
        """Append to the file."""
        view = memoryview(data)
        while view:
            view = view[os.write(self.fd, view) :]

    def replace(self, check: Check | None = None) -> None:
        """Put it in place of the file or link at the path, if there is one. Durable afterwards."""
        self.sync()
        if check is not None:
            check()
        self.rename()
        self.settle()

    # The steps of `replace`, for a caller that does more between them.

    def sync(self) -> None:
        """Make the object itself durable."""
        if self.fd >= 0:
            os.fsync(self.fd)

    def rename(self) -> None:
        """Move it over a file, a link or an empty directory at the path."""
        os.rename(self.temp, self.name, src_dir_fd=self.folder, dst_dir_fd=self.folder)

    def appear(self) -> None:
        """Move it to the path. Raises FileExistsError or NotADirectoryError if something is there.

        A directory may replace an empty directory, if the file system has no better rename.
        """
        if self._rename(self.temp, self.name, self.folder, syscalls.NOREPLACE):
            return
        if self._kind == "directory":
            self.rename()
            return
        os.link(
            self.temp,
            self.name,
            src_dir_fd=self.folder,
            dst_dir_fd=self.folder,
            follow_symlinks=False,
        )
        os.unlink(self.temp, dir_fd=self.folder)

    def exchange(self, old: os.stat_result) -> None:
        """Put a directory in place of something else, or the other way round. `old` is the status
        of the object at the path; a directory there must be empty.
        """
        if not self._rename(self.temp, self.name, self.folder, syscalls.EXCHANGE):
            remove(self.folder, self.name, old)
            self.rename()
            return
        try:
            discard(self.folder, self.temp)
        except OSError:  # the directory came to hold something: exchange them back
            self._rename(self.temp, self.name, self.folder, syscalls.EXCHANGE)
            raise

    def settle(self) -> None:
        """Make the move durable."""
        self.landed()
        sync(self.folder)

    def landed(self) -> None:
        """Note what stands at the path now."""
        self.left_over = False
        self.status = status_of(self.folder, self.name) if self.fd < 0 else os.fstat(self.fd)
        self._close_object()  # before the sync: its event is over then when that returns

    def close(self) -> None:
        """Remove an unfinished object, if possible, and close its descriptor."""
        self._close_object()
        if self.left_over:
            with suppress(OSError):
                discard(self.folder, self.temp)
                self.left_over = False

    def _close_object(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def status_of(folder: int, name: str) -> os.stat_result | None:
    """Status of the object itself, links not followed. None if there is none."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def remove(folder: int, name: str, status: os.stat_result) -> None:
    """Remove the object that `status` describes; a directory only when it is empty."""
    if stat.S_ISDIR(status.st_mode):
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def discard(folder: int, name: str) -> None:
    """Remove an unfinished object, if there is one."""
    status = status_of(folder, name)
    if status is not None:
        remove(folder, name, status)
