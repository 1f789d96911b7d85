"""Single steps on the disk: list, read, write a file or a link. None of them follows a link.

Knows no units. Errors of the kernel leave as `core.errors`.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import Final

from harmony_agent.adapters.posix.atomic import AtomicWrite, Check
from harmony_agent.core.errors import Transient

_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def names_in(path: str) -> list[str]:
    """List the names in a directory. Empty if there is no directory."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise failed("read", path, error) from error


def read_file(entry: str, directory: int) -> bytes:
    """Read a regular file. Follows no link and waits for no writer."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(entry, flags, dir_fd=directory), "rb") as file:
        return file.read()


def put_file(
    folder: int, entry: str, content: bytes, mode: int, check: Check, *, to_root: bool = False
) -> None:
    """Write a file atomically; with `to_root`, root owns it."""
    with AtomicWrite(folder, entry) as file:
        file.write(content)
        if to_root:
            os.fchown(file.fd, 0, 0)
        os.fchmod(file.fd, mode)
        file.replace(check)


def put_link(folder: int, entry: str, target: str, check: Check) -> None:
    """Make a symbolic link atomically."""
    with AtomicWrite(folder, entry, "symlink", target) as link:
        link.replace(check)


@contextlib.contextmanager
def naming(deed: str, place: str) -> Iterator[None]:
    """Turn an error of the kernel into one that names the deed and the place."""
    try:
        yield
    except OSError as error:
        raise failed(deed, place, error) from error


def failed(deed: str, place: str, error: OSError) -> Transient:
    """Return the error for a kernel's error."""
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
