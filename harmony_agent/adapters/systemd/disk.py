"""Single steps on the disk: open, read, write beside and rename, each durable when it returns and
through no link.

Knows no units. Errors of the kernel leave as `core.errors`.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Final

from harmony_agent.core.errors import Transient

Check = Callable[[], None]
"""Called before a change becomes visible; raises where it took too long to go on with it."""
_UNFINISHED: Final = (".harmony-", ".new")
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_unfinished(entry: str) -> bool:
    """Return whether it is what a killed agent left half written."""
    return entry.startswith(_UNFINISHED[0]) and entry.endswith(_UNFINISHED[1])


def make_directory(path: str) -> None:
    """Make a directory and those above it that are missing, durably."""
    above = os.path.dirname(path)
    if not os.path.isdir(above):
        make_directory(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o755)
    with opened(above) as parent:
        os.fsync(parent)


def open_directory(path: str, within: int | None = None) -> int:
    """A descriptor of a directory, by name within another where that is given."""
    # The last component may be a link where it is the administrator's own choice of directory,
    # never below that.
    follow = 0 if within is None else os.O_NOFOLLOW
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | follow, dir_fd=within)


@contextlib.contextmanager
def opened(path: str, within: int | None = None) -> Iterator[int]:
    """The same for a `with`."""
    directory = open_directory(path, within)
    try:
        yield directory
    finally:
        os.close(directory)


def names_in(path: str) -> list[str]:
    """List the names in a directory. Empty if there is no directory."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise failed("read", path, error) from error


def read_file(entry: str, directory: int) -> bytes:
    """The content of a regular file, read through no link and never waiting for a writer."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(entry, flags, dir_fd=directory), "rb") as file:
        return file.read()


def fingerprint_of(status: os.stat_result) -> tuple[int, ...]:
    """Another value when the file became another."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _unfinished(entry: str) -> str:
    # Of a fixed length, for a unit's name may leave no room; the same every time, so that a
    # leftover is found again.
    return f"{_UNFINISHED[0]}{hashlib.sha256(entry.encode()).hexdigest()[:16]}{_UNFINISHED[1]}"


def put_file(
    folder: int, entry: str, content: bytes, mode: int, check: Check, *, to_root: bool = False
) -> None:
    """Write beside, give it to root if asked to, fsync, rename, fsync the directory. Leaves nothing
    when it fails.
    """
    beside = _unfinished(entry)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
            file.flush()
            if to_root:
                os.fchown(file.fileno(), 0, 0)
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        check()
        os.rename(beside, entry, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


def put_link(folder: int, entry: str, target: str, check: Check) -> None:
    """The same for a symbolic link."""
    beside = _unfinished(entry)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside, dir_fd=folder)
    os.symlink(target, beside, dir_fd=folder)
    try:
        check()
        os.rename(beside, entry, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder)
        raise
    os.fsync(folder)


@contextlib.contextmanager
def naming(deed: str, place: str) -> Iterator[None]:
    """Turn what the kernel says into an error that names the deed and the place."""
    try:
        yield
    except OSError as error:
        raise failed(deed, place, error) from error


def failed(deed: str, place: str, error: OSError) -> Transient:
    """The error for it."""
    why = os.strerror(error.errno) if error.errno else "unknown error"
    text = f"cannot {deed} {place}: {why}"
    if error.errno in _NO_SPACE:
        return Transient("NoSpace", f"{text}; free some space on the device")
    if error.errno == errno.EROFS:
        return Transient("ReadOnly", f"{text}; mount the file system for writing")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Transient(
            "AccessDenied", f"{text}; give the agent's user this right", phase="Blocked", delay=60.0
        )
    return Transient("UnitFileError", text)
