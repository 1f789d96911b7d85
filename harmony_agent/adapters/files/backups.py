"""Copies of what stood at a path before a Score that says `adopt` took it over, in the agent's
state directory.

Synchronous; called in worker threads. A copy is complete or not there, readable by the agent alone,
and only deleted by `forget`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from harmony_agent.adapters.files.atomic_write import Changed, check
from harmony_agent.adapters.files.read import open_file, read_digest
from harmony_agent.adapters.posix.safe_path import Job, ParentDir, fingerprint, sync
from harmony_agent.topology.files import StatFingerprint

_CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Backups:
    """The copies in `<state directory>/former`; the directory is made when the first is kept."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._directory = os.path.join(state_dir, "former")

    def has(self, backup: str) -> bool:
        """Return whether there is a copy of this name; "" names none."""
        return backup != "" and os.path.isfile(os.path.join(self._directory, backup))

    def back_up(
        self, place: ParentDir, backup: str, digest: str, expect: StatFingerprint, job: Job
    ) -> None:
        """Copy the file at `place`. Raises Changed where it isn't as expected, OSError; then there
        is no new copy.
        """
        status = check(place, expect)
        source = open_file(place, status) if status is not None else -1
        try:
            self._copy(source, backup, digest, job)
            if fingerprint(os.fstat(source)) != expect:
                raise Changed
            with self._open() as directory:
                os.rename(backup + "~", backup, src_dir_fd=directory, dst_dir_fd=directory)
                sync(directory)
        finally:
            os.close(source)

    def try_owner(self, uid: int, gid: int) -> None:
        """Give a file to these and take it back: what can't be given couldn't be put back. Raises
        OSError.
        """
        with self._open() as directory:
            name = f"owner-{threading.get_ident()}~"
            fd = os.open(name, _CREATE, 0o600, dir_fd=directory)
            try:
                ours = os.fstat(fd)
                if (uid, gid) != (ours.st_uid, ours.st_gid):
                    os.fchown(fd, uid, gid)
            finally:
                os.close(fd)
                os.unlink(name, dir_fd=directory)

    def read(self, backup: str) -> int:
        """A descriptor to read the copy from."""
        return os.open(
            os.path.join(self._directory, backup), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        )

    def forget(self, backup: str) -> None:
        """Delete the copy and what is unfinished of one."""
        if not os.path.isdir(self._directory):
            return
        with self._open() as directory:
            for name in (backup + "~", backup):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
            sync(directory)

    def _copy(self, source: int, backup: str, digest: str, job: Job) -> None:
        with self._open() as directory:
            with suppress(FileNotFoundError):
                os.unlink(backup + "~", dir_fd=directory)
            copy = os.open(backup + "~", _CREATE, 0o600, dir_fd=directory)
            try:
                _fill(copy, source, digest, job)
                os.fsync(copy)
            except BaseException:
                with suppress(OSError):
                    os.unlink(backup + "~", dir_fd=directory)
                raise
            finally:
                os.close(copy)

    @contextmanager
    def _open(self) -> Iterator[int]:
        with suppress(FileExistsError):
            os.mkdir(self._directory, 0o700)
            above = os.open(self._state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                sync(above)
            finally:
                os.close(above)
        directory = os.open(
            self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        try:
            yield directory
        finally:
            os.close(directory)


def _write(fd: int, piece: bytes) -> None:
    view = memoryview(piece)
    while view:
        view = view[os.write(fd, view) :]


def _fill(copy: int, source: int, digest: str, job: Job) -> None:
    if read_digest(source, job, lambda piece: _write(copy, piece)) != digest:
        raise Changed
    _may_give_back(source, copy)


def _may_give_back(source: int, copy: int) -> None:
    """Try on the copy whether the agent may give a file to the owner of `source`: else removal
    couldn't put it back.
    """
    theirs, ours = os.fstat(source), os.fstat(copy)
    if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid):
        os.fchown(copy, theirs.st_uid, theirs.st_gid)
        os.fchown(copy, ours.st_uid, ours.st_gid)
