"""Read files of secrets, only if nobody else may read them. No error holds their content."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from harmony_fleet.errors import Conflict, InvalidInput

_MOST: Final = 4096
"""Bytes that are read: more than any key has."""


def read(path: Path, lost: str, exposed: str) -> bytes:
    """A key's file, by no link. `lost` and `exposed` say what to do where it can't be read, or
    others may have.

    Raises InvalidInput, Conflict.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise unreadable(path, error, lost) from None
    with os.fdopen(fd, "rb") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode) or seen.st_uid != os.geteuid():
            raise _exposed(path, exposed)
        _must_be_closed(path, seen, exposed)
        return file.read(_MOST)


def check(path: Path, exposed: str) -> None:
    """The same for a file that another reads, whoever owns it. One that isn't there is that one's
    to tell.
    """
    try:
        seen = path.stat()
    except OSError:
        return
    _must_be_closed(path, seen, exposed)


def unreadable(path: Path, error: OSError, lost: str) -> InvalidInput:
    """Error for a file of secrets, or a folder of them, that can't be read."""
    return InvalidInput("KeyUnreadable", f"cannot read {path}: {error.strerror}", lost)


def _must_be_closed(path: Path, seen: os.stat_result, exposed: str) -> None:
    if stat.S_IMODE(seen.st_mode) & 0o077:
        raise _exposed(path, exposed)


def _exposed(path: Path, exposed: str) -> Conflict:
    return Conflict(
        "KeyExposed",
        f"cannot use {path}: others own it or may read it, so others may have used it",
        f"where you are sure that nobody read it: chmod 600 {path}; else {exposed}",
    )
