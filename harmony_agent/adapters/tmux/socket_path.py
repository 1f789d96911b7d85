"""The socket's path, judged before anything is sent there: no link, nobody else's directory."""

from __future__ import annotations

import os
import stat

from harmony_agent.core.errors import Transient


def check(path: str, uid: int) -> bool:
    """Return whether a socket of `uid` is there. Raises Transient where the path isn't safe.

    Each directory above must be a real one, of root or of `uid`, which nobody else may write to;
    the last one must be of `uid`.
    """
    parts = path.split("/")[1:]
    above = ""
    for part in parts[:-1]:
        above += f"/{part}"
        found = _look(above)
        if found is None:
            return False
        _check_directory(above, found, uid, last=above == os.path.dirname(path))
    found = _look(path)
    if found is None:
        return False
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != uid:
        raise _unsafe(path, "is no socket of the agent's user")
    return True


def _look(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unsafe(path, f"can't be looked at ({error.strerror})") from None


def _check_directory(path: str, found: os.stat_result, uid: int, *, last: bool) -> None:
    if not stat.S_ISDIR(found.st_mode):
        raise _unsafe(path, "is no directory, or a link to one")
    if found.st_uid != uid and (last or found.st_uid != 0):
        raise _unsafe(path, "is another user's")
    others = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if others and (last or not found.st_mode & stat.S_ISVTX):
        raise _unsafe(path, "can be written to by others")


def _unsafe(path: str, what: str) -> Transient:
    text = f"cannot use the socket of sessions: {path} {what}. Choose another for [sessions] socket"
    return Transient("SessionSocketUnsafe", text, phase="Blocked", delay=5.0)
