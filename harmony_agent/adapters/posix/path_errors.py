"""Errors of work on a path, and the `core.errors` that a kind gets for them."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Final

from harmony_agent.adapters.posix.executor import Abandoned, TimedOut
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import PathError


class PathRefused(Exception):
    """The path can't be worked on; `error` says why."""

    def __init__(self, error: PathError) -> None:
        super().__init__(error.message)
        self.error = error


class MissingParents(Exception):
    """These parents below the root don't exist, outermost first."""

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__("parents are missing")
        self.paths = tuple(paths)


class Changed(Exception):
    """Something else stands at the path than was expected; nothing was changed."""


_REASONS: Final = {
    errno.ENOSPC: ("NoSpace", "Degraded", "the file system is full; free some space"),
    errno.EDQUOT: ("NoSpace", "Degraded", "the quota is used up; free some space or raise it"),
    errno.EROFS: (
        "ReadOnlyFileSystem",
        "Degraded",
        "the file system is read-only; see why, and remount it",
    ),
    errno.EACCES: (
        "PermissionDenied",
        "Blocked",
        "the agent's user may not; see the owner and mode of its directory",
    ),
    errno.EPERM: (
        "PermissionDenied",
        "Blocked",
        "the agent's user may not, or an attribute such as +i forbids it",
    ),
    errno.ELOOP: ("SymlinkInPath", "Blocked", "a symbolic link is in the way; name the real path"),
    errno.ENOTDIR: (
        "NotADirectory",
        "Blocked",
        "something in the way is no directory; move it away",
    ),
    errno.ENOTEMPTY: ("DirectoryNotEmpty", "Blocked", "the directory holds something; empty it"),
    errno.EBUSY: ("Busy", "Blocked", "something is mounted there or uses it; unmount it"),
    errno.ENAMETOOLONG: (
        "PathTooLong",
        "Blocked",
        "this file system takes no name of that length; shorten it",
    ),
}


def path_error(error: OSError, doing: str) -> PathError:
    """Translate an error of the kernel. `doing` is as ``write /srv/a``."""
    reason, phase, advice = _REASONS.get(
        error.errno or 0,
        (
            "IoError",
            "Degraded",
            f"{os.strerror(error.errno or errno.EIO).lower()}; see the kernel's log",
        ),
    )
    return PathError(
        reason, f"cannot {doing}: {advice}", "Blocked" if phase == "Blocked" else "Degraded"
    )


def transient(error: Exception, doing: str) -> Transient | None:
    """Translate an error of the work `doing`. None: it is no error of a path."""
    match error:
        case TimedOut():
            text = f"cannot {doing}: {error}; see whether its disk answers"
            return Transient("Timeout", text, phase="Unknown")
        case MissingParents():
            text = f"cannot {doing}: {error.paths[0]} isn't there"
            return Transient("ParentMissing", text, delay=1.0)
        case Changed() | Abandoned() | FileNotFoundError():
            text = f"cannot {doing}: it changed since it was looked at; looking again"
            return Transient("ChangedMeanwhile", text, delay=0.2, phase="Progressing")
        case PathRefused():
            return _from_path_error(error.error)
        case OSError():
            return _from_path_error(path_error(error, doing))
    return None


def _from_path_error(found: PathError) -> Transient:
    """Retry at the pace of an outside cause, or with backoff."""
    delay = found.seconds if found.phase == "Blocked" else None
    return Transient(found.reason, found.message, delay=delay, phase=found.phase)
