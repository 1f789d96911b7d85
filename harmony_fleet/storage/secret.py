"""Use a file only if its mode is safe: secrets that nobody else may read, a roster that not everybody
may write. No error holds their content.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from harmony_fleet.errors import Conflict, HarmonyError, InvalidInput

_MOST: Final = 4096
"""Bytes that are read: more than any key has."""
_FOR_OTHERS: Final = 0o077
_WRITE_BY_ALL: Final = 0o002


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
        _must_be_closed(seen, _FOR_OTHERS, _exposed(path, exposed))
        return file.read(_MOST)


def check(path: Path, exposed: str) -> None:
    """The same for a file that another reads, whoever owns it. One that isn't there is that one's
    to tell.
    """
    try:
        seen = path.stat()
    except OSError:
        return
    _must_be_closed(seen, _FOR_OTHERS, _exposed(path, exposed))


def check_writers(path: Path) -> None:
    """Refuse a file that everybody may write, or put another in its place: by its own mode, or by
    that of a folder on the way to it. A link counts as the way that it is. Raises Conflict.
    """
    for step in _way(path):
        try:
            seen = step.lstat()
        except OSError:
            continue  # who reads the file tells that it is missing
        # In a folder with the sticky bit nobody renames the file of another.
        open_folder = stat.S_ISDIR(seen.st_mode) and not seen.st_mode & stat.S_ISVTX
        if open_folder or stat.S_ISREG(seen.st_mode):
            _must_be_closed(seen, _WRITE_BY_ALL, _writable(path, step))


def _way(path: Path) -> list[Path]:
    """The file, its folders, and the same of every link among them."""
    found: dict[Path, None] = {}
    todo = [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
    while todo:
        step = todo.pop()
        if step in found:
            continue
        found[step] = None
        todo += step.parents
        try:
            target = os.readlink(step)
        except OSError:
            continue  # no link
        todo.append(Path(os.path.normpath(os.path.join(os.path.realpath(step.parent), target))))
    return list(found)


def unreadable(path: Path, error: OSError, lost: str) -> InvalidInput:
    """Error for a file of secrets, or a folder of them, that can't be read."""
    return InvalidInput("KeyUnreadable", f"cannot read {path}: {error.strerror}", lost)


def _must_be_closed(seen: os.stat_result, bits: int, error: HarmonyError) -> None:
    if stat.S_IMODE(seen.st_mode) & bits:
        raise error


def _writable(path: Path, step: Path) -> Conflict:
    what = "it" if step == path else str(step)
    return Conflict(
        "WritableByAnybody",
        f"cannot use {path}: anybody may write {what}, and what it says is signed and applied",
        f"see that it says what you want, then: chmod o-w {step}",
    )


def _exposed(path: Path, exposed: str) -> Conflict:
    return Conflict(
        "KeyExposed",
        f"cannot use {path}: others own it or may read it, so others may have used it",
        f"where you are sure that nobody read it: chmod 600 {path}; else {exposed}",
    )
