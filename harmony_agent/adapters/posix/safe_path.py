"""Walk the file tree below the roots without following a symbolic link.

Synchronous; called in worker threads. Every parent below a root is opened by its name in the
directory above it. A rename or link that somebody makes meanwhile can't lead out of the root.
Changes nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import status_of, sync, temp_name
from harmony_agent.adapters.posix.path_errors import MissingParents, PathRefused
from harmony_agent.core.frozen import frozen
from harmony_agent.topology.files import PathError

_WALK: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LIST: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS: Final = 40


@frozen()
class ParentDir:
    """An open parent directory and a name in it.

    `fd` is an O_PATH descriptor if the directory can't be listed.
    """

    fd: int
    name: str
    path: str

    @property
    def temp(self) -> str:
        """The name of an unfinished object beside it."""
        return temp_name(self.path)

    def stat(self, name: str | None = None) -> os.stat_result | None:
        """Status of the object itself, links not followed. None if there is none."""
        return status_of(self.fd, name or self.name)

    def sync(self) -> None:
        """Make the directory's entries durable."""
        sync(self.fd)


class RootedPaths:
    """The roots below which paths may be worked on, and the way from a root to a path.

    The way to a root may lead through symbolic links of the `administrator`. That is root; tests
    that don't run as root name another user.
    """

    def __init__(
        self, roots: Sequence[str], singles: Sequence[str] = (), administrator: int = 0
    ) -> None:
        """`singles` are paths of files that are allowed though no root holds them."""
        self.administrator = administrator
        self._singles = frozenset(singles)
        self.roots = sorted({root.rstrip("/") for root in roots}, key=len, reverse=True)

    def root_of(self, path: str) -> str | None:
        """The innermost root that `path` is below ("" for /), else the parent of a single file."""
        root = next((root for root in self.roots if path.startswith(root + "/")), None)
        if root is None and path in self._singles:
            return path.rpartition("/")[0]
        return root

    @contextmanager
    def parent(self, path: str) -> Iterator[ParentDir]:
        """The open parent of `path`. Raises MissingParents, PathRefused, OSError."""
        root = self.root_of(path)
        if root is None:
            raise PathRefused(
                PathError(
                    "PathOutsideRoots",
                    f"cannot touch {path}: no root of the configuration holds it",
                )
            )
        above, _, name = path.rpartition("/")
        fd = syscalls.open_without_links(above or "/", _LIST)
        if (
            fd is None
        ):  # a link on the way to the root, a parent that isn't there or can't be listed, an old kernel
            fd = self._walk(root, path)
        try:
            yield ParentDir(fd, name, path)
        finally:
            os.close(fd)

    def _walk(self, root: str, path: str) -> int:
        """Open the parent part by part, and tell what is in the way."""
        names = path[len(root) + 1 :].split("/")[:-1]
        fd = _open_root(root, bool(names), self.administrator)
        try:
            for index, part in enumerate(names):
                fd, above = _step(fd, part, root, names, index), fd
                os.close(above)
        except BaseException:
            os.close(fd)
            raise
        return fd


def _open_root(root: str, walk_on: bool, administrator: int) -> int:
    """Open a root, through links of the administrator alone. Others could change theirs later."""
    try:
        return _walk_to(root, walk_on, administrator)
    except FileNotFoundError:
        raise PathRefused(
            PathError("RootMissing", f"cannot go below {root}: make this directory; it is a root")
        ) from None


def _walk_to(root: str, walk_on: bool, administrator: int) -> int:
    parts = [part for part in root.split("/") if part]
    links = 0
    fd = _open_dir("/", None, walk_on or bool(parts))
    try:
        while parts:
            part = parts.pop(0)
            try:
                fd, above = _open_dir(part, fd, walk_on or bool(parts)), fd
            except OSError as error:
                if error.errno not in (errno.ENOTDIR, errno.ELOOP) or links == _MOST_LINKS:
                    raise
                target, links = _link(part, fd, root, administrator), links + 1
                parts[:0] = [name for name in target.split("/") if name not in ("", ".")]
                fd, above = (
                    (
                        _open_dir("/", None, walk_on or bool(parts))
                        if target[0] == "/"
                        else os.dup(fd)
                    ),
                    fd,
                )
            os.close(above)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _link(part: str, fd: int, root: str, administrator: int) -> str:
    """Return the target of the link `part`, if the administrator made it."""
    status = os.stat(part, dir_fd=fd, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if status.st_uid != administrator:
        text = f"cannot go below {root}: {part} on the way to it is a symbolic link that isn't root's; remove it"
        raise PathRefused(PathError("SymlinkInPath", text))
    return os.readlink(part, dir_fd=fd)


def _step(fd: int, part: str, root: str, names: Sequence[str], index: int) -> int:
    """Open the next parent. `fd` stays open."""
    try:
        return _open_dir(part, fd, index < len(names) - 1)
    except FileNotFoundError:
        raise MissingParents(
            [f"{root}/{'/'.join(names[: n + 1])}" for n in range(index, len(names))]
        ) from None
    except OSError as error:
        if error.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        where = f"{root}/{'/'.join(names[: index + 1])}"
        raise PathRefused(_no_directory(part, fd, where)) from None


def _no_directory(part: str, fd: int, where: str) -> PathError:
    with suppress(OSError):
        if stat.S_ISLNK(os.stat(part, dir_fd=fd, follow_symlinks=False).st_mode):
            return PathError(
                "SymlinkInPath",
                f"cannot go through {where}: it is a symbolic link; name the real path",
            )
    return PathError(
        "NotADirectory", f"cannot go through {where}: it is no directory; move it away"
    )


def _open_dir(name: str, dir_fd: int | None, walk_on: bool) -> int:
    """Open to go through, or to list and sync where permissions allow."""
    if not walk_on:
        try:
            return os.open(name, _LIST, dir_fd=dir_fd)
        except PermissionError:
            pass  # a directory that may be written but not listed
    return os.open(name, _WALK, dir_fd=dir_fd)
