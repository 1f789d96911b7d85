"""`topology.env_files.EnvFiles` on the file system: files of NAME=value lines, below roots only.

No part of a path below a root may be a link, whatever is swapped meanwhile. Must not keep or log
content: only digests are remembered.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from harmony_agent.adapters.posix.executor import BoundedExecutor
from harmony_agent.adapters.posix.path_errors import MissingParents, PathRefused, transient
from harmony_agent.adapters.posix.safe_path import RootedPaths
from harmony_agent.adapters.posix.stat_cache import StatCache, fingerprint, is_settled

T = TypeVar("T")
MOST_BYTES: Final = 1024 * 1024
MOST_KNOWN: Final = 4096
_SECONDS: Final = 20.0
_READ: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC


class LocalEnvFiles:
    """Env files below `roots`. One that is no regular file, too large or unreadable isn't there."""

    def __init__(self, roots: Sequence[str]) -> None:
        self._paths = RootedPaths(roots)
        self._threads = BoundedExecutor(transient)
        self._known = StatCache[str](MOST_KNOWN)

    async def digests(self, paths: Collection[str]) -> Mapping[str, str | None]:
        """The digest of each; a file that is known by its stat isn't read again."""
        if not paths:
            return {}
        key = "\n".join(sorted(paths))
        return await self._in_thread(key, "look at env files", lambda: self._digests(paths))

    async def read(self, path: str) -> bytes | None:
        """The content."""
        return await self._in_thread(path, f"read {path}", lambda: self._read(path))

    async def identify(self, paths: Collection[str]) -> Mapping[str, str | None]:
        """Device and inode of each."""
        key = "\n".join(("identify", *sorted(paths)))
        return await self._in_thread(
            key, "identify paths", lambda: {path: _inode(path) for path in paths}
        )

    async def resolve(self, paths: Collection[str]) -> Mapping[str, str]:
        """Resolve each path."""
        key = "\n".join(("resolve", *sorted(paths)))
        return await self._in_thread(
            key, "resolve paths", lambda: {path: os.path.realpath(path) for path in paths}
        )

    async def _in_thread(self, key: str, doing: str, work: Callable[[], T]) -> T:
        return await self._threads.run("env files", key, doing, _SECONDS, lambda _job: work())

    def _digests(self, paths: Collection[str]) -> dict[str, str | None]:
        return {path: self._digest(path) for path in paths}

    def _digest(self, path: str) -> str | None:
        looked = time.time()
        with suppress(OSError), self._opened(path) as (descriptor, status):
            digest = self._known.find(path, fingerprint(status))
            if digest is None:
                digest = "sha256:" + hashlib.sha256(_content(descriptor)).hexdigest()
                settled = is_settled(status.st_ctime_ns, looked)
                self._known.put(path, fingerprint(status), digest, settled=settled)
            return digest
        self._known.drop(path)
        return None

    def _read(self, path: str) -> bytes | None:
        with suppress(OSError), self._opened(path) as (descriptor, _):
            return _content(descriptor)
        return None

    @contextmanager
    def _opened(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
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
            yield descriptor, found
        finally:
            os.close(descriptor)


def _inode(path: str) -> str | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return f"{found.st_dev}:{found.st_ino}"


def _content(descriptor: int) -> bytes:
    """Read all of a file. Raises OSError if it has grown too large meanwhile."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise PermissionError("not a small file")
    return content
