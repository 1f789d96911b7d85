"""System calls that Python's `os` lacks, through the C library: renameat2, openat2, syncfs,
inotify, prctl, ioprio. Decides nothing.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Final

NOREPLACE: Final = 1
EXCHANGE: Final = 2

IN_ATTRIB: Final = 0x4
IN_CLOSE_WRITE: Final = 0x8
IN_MOVED_FROM: Final = 0x40
IN_MOVED_TO: Final = 0x80
IN_CREATE: Final = 0x100
IN_DELETE: Final = 0x200
IN_DELETE_SELF: Final = 0x400
IN_MOVE_SELF: Final = 0x800
IN_UNMOUNT: Final = 0x2000
IN_Q_OVERFLOW: Final = 0x4000
IN_IGNORED: Final = 0x8000
IN_ONLYDIR: Final = 0x01000000
IN_DONT_FOLLOW: Final = 0x02000000
IN_EXCL_UNLINK: Final = 0x04000000
IN_ISDIR: Final = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)
_UNSUPPORTED: Final = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP})


def _check(result: int, *names: str | int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), *names[:1])
    return result


def renameat2(old: str, new: str, dir_fd: int, flags: int) -> bool:
    """Rename within one directory, with NOREPLACE or EXCHANGE. False: this file system or C library
    can't.
    """
    try:
        call = _libc.renameat2
    except AttributeError:
        return False
    try:
        _check(call(dir_fd, os.fsencode(old), dir_fd, os.fsencode(new), ctypes.c_uint(flags)), new)
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return False
        raise
    return True


def syncfs(fd: int) -> None:
    """Make all durable that was written to the file system of `fd`."""
    _check(_libc.syncfs(fd))


class _How(ctypes.Structure):
    """The kernel's struct open_how."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_OPENAT2: Final = ctypes.c_long(437)
"""Its number, the same on every architecture."""
_AT_FDCWD: Final = ctypes.c_int(-100)
_NO_SYMLINKS: Final = 0x4


def open_without_links(path: str, flags: int) -> int | None:
    """Open an absolute path in one call, if no part of it is a symbolic link. None if that fails.

    A walk costs two calls for each part, and each call releases and takes Python's lock.
    """
    how = _How(flags, 0, _NO_SYMLINKS)
    size = ctypes.c_size_t(ctypes.sizeof(how))
    fd = _libc.syscall(_OPENAT2, _AT_FDCWD, os.fsencode(path), ctypes.byref(how), size)
    return None if fd < 0 else int(fd)


def inotify_init() -> int:
    """A new inotify descriptor, not blocking, closed on exec."""
    return _check(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))


def inotify_add(fd: int, path: str, mask: int) -> int:
    """Watch `path`; its watch descriptor, the same one when it is watched already."""
    return _check(_libc.inotify_add_watch(fd, os.fsencode(path), ctypes.c_uint32(mask)), path)


def inotify_remove(fd: int, watch: int) -> None:
    """Watch it no more; one that the kernel dropped by itself is no error."""
    _libc.inotify_rm_watch(fd, watch)


_PR_SET_DUMPABLE: Final = 4
_IOPRIO: Final = {
    "x86_64": (251, 252),
    "aarch64": (30, 31),
    "armv7l": (314, 315),
    "i686": (289, 290),
}
"""Numbers of ioprio_set and ioprio_get, which the C library doesn't have."""
_WHO_PROCESS: Final = ctypes.c_int(1)


def set_dumpable(*, dumpable: bool) -> None:
    """Give the files of this process below /proc to its user, or to root alone."""
    _check(_libc.prctl(_PR_SET_DUMPABLE, ctypes.c_ulong(dumpable), *(ctypes.c_ulong(0),) * 3))


def ioprio_get(thread: int) -> int | None:
    """Class and priority of a thread's input and output; None on a machine whose number isn't
    known.
    """
    numbers = _IOPRIO.get(os.uname().machine)
    if numbers is None:
        return None
    return _check(_libc.syscall(ctypes.c_long(numbers[1]), _WHO_PROCESS, ctypes.c_int(thread)))


def ioprio_set(thread: int, value: int) -> None:
    """Set class and priority of a thread's input and output."""
    number = _IOPRIO[os.uname().machine][0]
    _check(
        _libc.syscall(
            ctypes.c_long(number), _WHO_PROCESS, ctypes.c_int(thread), ctypes.c_int(value)
        )
    )
