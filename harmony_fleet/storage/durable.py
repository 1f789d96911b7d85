"""Replace a whole file durably. A kill of this process leaves nothing unfinished behind.

The new content goes into a file without a name (O_TMPFILE). To name it and to rename it over the
old one takes two calls. A short-lived child makes both, so that a kill of this process can't fall
between them. A file system without such files gets a named one beside, and `sweep` removes what a
kill left.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

_COMMIT: Final = (
    "import os, sys; fd, beside, path = sys.argv[1:]; root = os.open('/', os.O_RDONLY)\n"
    "os.link('/proc/self/fd/' + fd, beside, src_dir_fd=root, follow_symlinks=True); os.replace(beside, path)"
)
_SECONDS: Final = 30


def beside(path: str) -> str:
    """The name under which the new content is for a moment."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f".{name}.new")


def sweep(path: str) -> None:
    """Take away what a kill left. Only under the lock that every writer holds."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside(path))


def replace(path: str, data: bytes, keep: Sequence[int] = (), *, secret: bool = False) -> None:
    """Put `data` in the file's place, with its mode (0600 for a new one). Raises OSError; then the
    old one stands.

    A `secret` is 0600 from its first byte on, however open the file before it was.
    `keep` are descriptors that the child inherits: a lock that shall last as long as it works.
    """
    folder = os.path.dirname(path)
    try:
        fd = os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o600)
    except (OSError, AttributeError):
        fd = -1
    try:
        if fd < 0:
            _replace_named(path, data, secret=secret)
        else:
            _replace_nameless(path, fd, data, keep, secret=secret)
        sync_folder(folder)
    except OSError as error:
        error.filename = path  # where, also when a write to what has no name failed
        raise


def _fill(fd: int, path: str, data: bytes, *, secret: bool) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.fchmod(fd, 0o600 if secret else stat.S_IMODE(os.stat(path).st_mode))
    with os.fdopen(fd, "wb", closefd=False) as file:
        file.write(data)
    os.fsync(fd)


def _replace_nameless(
    path: str, fd: int, data: bytes, keep: Sequence[int], *, secret: bool
) -> None:
    try:
        _fill(fd, path, data, secret=secret)
        argv = [sys.executable, "-I", "-S", "-c", _COMMIT, str(fd), beside(path), path]
        code = subprocess.run(  # noqa: S603 - our own interpreter and words
            argv,
            pass_fds=[fd, *keep],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        code = -1
    finally:
        os.close(fd)
    if code != 0:
        sweep(path)
        raise OSError(0, "the new content couldn't be put in place")


def _replace_named(path: str, data: bytes, *, secret: bool) -> None:
    fd = os.open(beside(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    try:
        _fill(fd, path, data, secret=secret)
        os.replace(beside(path), path)
    except OSError:
        sweep(path)
        raise
    finally:
        os.close(fd)


def sync_folder(folder: str) -> None:
    """Make durable what was made, renamed or removed in the folder."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
