"""Tell which followed paths may have changed, by inotify.

One descriptor has a watch for the parent directory of each path. Events only make a look sooner.
The relist finds changes in a directory that can't be watched.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import is_temp
from harmony_agent.adapters.posix.mounts import file_system_at

_log = logging.getLogger(__name__)
_EVENT: Final = struct.Struct("iIII")
_BUFFER: Final = 1 << 16
ENTRIES: Final = (
    syscalls.IN_ATTRIB
    | syscalls.IN_CREATE
    | syscalls.IN_DELETE
    | syscalls.IN_MOVED_FROM
    | syscalls.IN_MOVED_TO
)
"""An entry of a directory comes, goes or is given to another; no write to it."""
_DIRECTORY: Final = (
    syscalls.IN_DELETE_SELF
    | syscalls.IN_MOVE_SELF
    | syscalls.IN_ONLYDIR
    | syscalls.IN_DONT_FOLLOW
    | syscalls.IN_EXCL_UNLINK
)
_GONE: Final = (
    syscalls.IN_DELETE_SELF | syscalls.IN_MOVE_SELF | syscalls.IN_UNMOUNT | syscalls.IN_IGNORED
)

_EVENTFUL: Final = frozenset({"ext4", "btrfs", "xfs", "f2fs", "vfat", "tmpfs", "overlay"})
"""File systems that nobody but this kernel changes. Those of a network or of a process stay out."""


class Watcher:
    """Follows paths. `follow` and `retain` may be called from any thread; `run` and `close` from
    the loop's.
    """

    def __init__(self, events: int = ENTRIES | syscalls.IN_CLOSE_WRITE) -> None:
        self._lock = threading.Lock()
        self._mask = events | _DIRECTORY
        self._fd = -1
        self._paths: Sequence[str] = ()
        self._children: dict[str, set[str]] = {}
        self._watches: dict[str, tuple[int, int]] = {}  # directory -> watch, inode
        self._directories: dict[int, str] = {}
        self._eventful: set[str] = set()
        """watched directories on file systems that tell of each change"""
        self._complained = False
        self.epoch = 0
        """another one whenever an event may have been lost: a watch is new or gone, or too many came"""

    def covers(self, directories: Iterable[str], epoch: int) -> bool:
        """Return whether each change in these directories since `epoch` has made an event."""
        with self._lock:
            return epoch == self.epoch and self._eventful.issuperset(directories)

    def follow(self, path: str) -> None:
        """Follow this one as well."""
        directory = _parent(path)
        with self._lock:
            self._children.setdefault(directory, set()).add(path)
            if self._fd >= 0:
                self._reach(directory)

    def retain(self, paths: Sequence[str], inodes: Mapping[str, int]) -> None:
        """Follow these paths and no others.

        `inodes` are the present inodes of directories, as far as they are known.
        """
        with self._lock:
            if paths is not self._paths and paths != self._paths:
                self._paths = paths
                self._children = {}
                for path in paths:
                    self._children.setdefault(_parent(path), set()).add(path)
            if self._fd >= 0:
                self._renew(inodes)

    async def run(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with each followed path on which there is an event, until cancelled."""
        with self.listening(changed):
            await asyncio.Event().wait()

    @contextmanager
    def listening(self, changed: Callable[[str], None]) -> Iterator[None]:
        """The same while the context lasts, from the loop that runs."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._fd = fd = syscalls.inotify_init()
            self._renew({})
        try:
            loop.add_reader(fd, self._read, fd, changed)
            yield
        finally:
            loop.remove_reader(fd)
            self.close()

    def close(self) -> None:
        """Close the descriptor, and every watch with it."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
            self._watches.clear()
            self._directories.clear()
            self._eventful.clear()
            self.epoch += 1

    def _renew(self, inodes: Mapping[str, int]) -> None:
        """Watch the needed directories and no others. A replaced directory is watched anew."""
        for directory in [
            d for d, (_, inode) in self._watches.items() if inodes.get(d, inode) != inode
        ]:
            self._drop(directory)
        needed = {self._reach(directory) for directory in self._children}
        for directory in self._watches.keys() - needed:
            self._drop(directory)

    def _reach(self, directory: str) -> str:
        """Watch the directory, or the nearest one above it that exists. Return the watched one."""
        while not self._watch(directory) and directory != "/":
            directory = _parent(directory)
        return directory

    def _watch(self, directory: str) -> bool:
        if directory in self._watches:
            return True
        try:
            eventful = file_system_at(directory) in _EVENTFUL
            watch = syscalls.inotify_add(self._fd, directory, self._mask)
            self._watches[directory] = (watch, os.lstat(directory).st_ino)
        except OSError as error:
            if error.errno == errno.ENOSPC and not self._complained:
                self._complained = True
                _log.warning(
                    "cannot watch more directories: raise fs.inotify.max_user_watches; until then the relist"
                )
            return error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
        self._directories[watch] = directory
        if eventful:
            self._eventful.add(directory)
        self.epoch += 1
        return True

    def _drop(self, directory: str) -> None:
        watch, _ = self._watches.pop(directory)
        self._eventful.discard(directory)
        self.epoch += 1
        if self._directories.get(watch) == directory:
            del self._directories[watch]
            syscalls.inotify_remove(self._fd, watch)

    def _read(self, fd: int, changed: Callable[[str], None]) -> None:
        with suppress(BlockingIOError):
            data = os.read(fd, _BUFFER)
            for path in self._affected(data):
                changed(path)

    def _affected(self, data: bytes) -> list[str]:
        """Return the followed paths that these events are about, each once."""
        paths: dict[str, None] = {}
        offset = 0
        with self._lock:
            while offset < len(data):
                watch, mask, _cookie, length = _EVENT.unpack_from(data, offset)
                offset += _EVENT.size
                name = os.fsdecode(data[offset : offset + length].rstrip(b"\0"))
                offset += length
                paths |= dict.fromkeys(self._event(watch, mask, name))
            return list(paths)

    def _event(self, watch: int, mask: int, name: str) -> Iterable[str]:
        if mask & syscalls.IN_Q_OVERFLOW:
            self.epoch += 1
            return [path for paths in self._children.values() for path in paths]
        directory = self._directories.get(watch)
        if directory is None:
            return ()
        if mask & _GONE:  # the next look below finds the directory that is there then
            if directory in self._watches:
                self._drop(directory)
            return self._below(directory)
        if is_temp(name):
            return ()
        path = f"{directory.rstrip('/')}/{name}"
        found = [path] if path in self._children.get(directory, ()) else []
        return [*found, *self._below(path)] if mask & syscalls.IN_ISDIR else found

    def _below(self, path: str) -> list[str]:
        """Followed paths at any depth below `path`."""
        return [
            child
            for parent, children in self._children.items()
            if parent == path or parent.startswith(path + "/")
            for child in children
        ]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
