"""`topology.secret_files` below the runtime directory, which has to be in memory.

A file is replaced whole: what has it open or bound goes on with the one before.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Final

from harmony_agent.adapters.posix.mounts import file_system_at
from harmony_agent.core.errors import Transient

_IN_MEMORY: Final = ("tmpfs", "ramfs")


class TmpfsSecretFiles:
    """Files in `folder`, which is made where it is missing."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def path(self, container: str, name: str) -> str:
        """A folder for each container."""
        return f"{self._folder}/{container}/{name}"

    def put(self, container: str, name: str, content: bytes, mode: int) -> None:
        """Write it beside and rename, unless it is there so."""
        path = self.path(container, name)
        try:
            self._prepare(container)
            if _is_so(path, content, mode):
                return
            beside = f"{path}~"
            with suppress(FileNotFoundError):
                os.unlink(beside)
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(fd, mode)
            os.replace(beside, path)
        except OSError as error:
            raise _unusable(self._folder, error.strerror or "it can't be written") from None

    def retain(self, wanted: Mapping[str, Collection[str] | None]) -> None:
        """Remove the others."""
        with suppress(FileNotFoundError, PermissionError):
            for container in os.listdir(self._folder):
                names = wanted.get(container, ())
                if not names and names is not None:
                    shutil.rmtree(f"{self._folder}/{container}", ignore_errors=True)
                for name in os.listdir(f"{self._folder}/{container}") if names else ():
                    if name not in (names or ()):
                        os.unlink(self.path(container, name))

    def _prepare(self, container: str) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if file_system_at(self._folder) not in _IN_MEMORY:
            raise _unusable(self._folder, "it is no file system in memory")
        with suppress(FileExistsError):
            os.mkdir(f"{self._folder}/{container}", 0o700)


def _is_so(path: str, content: bytes, mode: int) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != mode:
            return False
        return file.read(len(content) + 1) == content


def _unusable(folder: str, why: str) -> Transient:
    text = f"cannot hand out secrets in {folder}: {why}"
    return Transient("SecretFilesUnusable", text, phase="Blocked", delay=30.0)
