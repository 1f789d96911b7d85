"""`topology.containers.EnvFiles` on the file system: files of NAME=value lines, below given folders
only.

Each folder of a path is opened by its descriptor without following a link, so that nothing outside
the roots is read whatever is swapped meanwhile. Must not keep or log content: only digests are
remembered.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from harmony_agent.adapters.posix.path_errors import MissingParents, PathRefused
from harmony_agent.adapters.posix.safe_path import RootedPaths

MOST_BYTES: Final = 1024 * 1024
MOST_KNOWN: Final = 4096
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
_Stamp = tuple[int, int, int, int, int]


class LocalEnvFiles:
    """Env files below `roots`. What is no regular file, too large or not readable counts as not
    there.
    """

    def __init__(self, roots: Sequence[str]) -> None:
        self._paths = RootedPaths(roots)
        self._known: dict[str, tuple[_Stamp, str]] = {}

    async def digests(self, paths: Collection[str]) -> Mapping[str, str | None]:
        """The digest of each; a file whose inode, size and times are as before isn't read again."""
        return await asyncio.to_thread(self._digests, tuple(paths)) if paths else {}

    async def read(self, path: str) -> bytes | None:
        """The content."""
        return await asyncio.to_thread(self._read, path)

    async def resolve(self, paths: Collection[str]) -> Mapping[str, str]:
        """Resolve each path."""
        return await asyncio.to_thread(lambda: {path: os.path.realpath(path) for path in paths})

    def _digests(self, paths: Collection[str]) -> dict[str, str | None]:
        return {path: self._digest(path) for path in paths}

    def _digest(self, path: str) -> str | None:
        with suppress(OSError), self._opened(path) as (descriptor, stamp):
            known = self._known.get(path)
            if known is None or known[0] != stamp:
                known = stamp, "sha256:" + hashlib.sha256(_content(descriptor)).hexdigest()
                if (
                    len(self._known) >= MOST_KNOWN
                ):  # paths that no spec names any more; the others are soon known again
                    self._known.clear()
                self._known[path] = known
            return known[1]
        self._known.pop(path, None)
        return None

    def _read(self, path: str) -> bytes | None:
        with suppress(OSError), self._opened(path) as (descriptor, _):
            return _content(descriptor)
        return None

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, _Stamp]]:
        if {"", ".", ".."} & set(path.split("/")[1:]):
            raise PermissionError("no normal path")
        try:
            with self._paths.parent(path) as place:
                descriptor = os.open(place.name, _READ, dir_fd=place.fd)
        except (PathRefused, MissingParents) as error:
            raise PermissionError("not below a root, or through a link") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise PermissionError("not a small regular file")
            yield (
                descriptor,
                (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns),
            )
        finally:
            os.close(descriptor)


def _content(descriptor: int) -> bytes:
    """All of a file; OSError when it has grown too large meanwhile."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise PermissionError("not a small file")
    return content
