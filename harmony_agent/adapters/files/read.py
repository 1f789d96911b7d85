"""Observe one path: read and hash it, without following a link or waiting on a FIFO.

Synchronous; called in worker threads. Changes nothing, not even an access time if that can be
avoided.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from typing import Any, Final

from harmony_agent.adapters.posix.accounts import Accounts
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.safe_path import ParentDir
from harmony_agent.adapters.posix.stat_cache import fingerprint
from harmony_agent.topology.files import MAX_READ, ObjectStat, ObjectType, StatFingerprint

Known = Callable[[StatFingerprint], str | None]
"""Gives the digest of a file with this fingerprint. None if it must be read."""
Hasher = Callable[[], Any]
"""Makes a hash of `hashlib`'s form."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CHUNK: Final = 1 << 16  # four threads with 1 MiB each kept 10 MB for good, and read 3 % faster
_TRIES: Final = 3


class PathReader:
    """Observes objects. `accounts` names their owners."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    def see(
        self, place: ParentDir, job: Job, known: Known, hasher: Hasher = hashlib.sha256
    ) -> ObjectStat | None:
        """Observe the object at `place`; its digest is by `hasher`.

        None if there is none. Raises OSError if it can't be read.
        """
        for attempt in range(_TRIES):
            status = place.stat()
            if status is None:
                return None
            try:
                patient = attempt < _TRIES - 1
                return self._see(place, status, job, known, hasher, patient=patient)
            except (FileNotFoundError, _Moving):
                continue  # it is being replaced or written: look at what there is now
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def file(self, status: os.stat_result, digest: str | None) -> ObjectStat:
        """A regular file of this state and content."""
        return self._seen("file", status, size=status.st_size, digest=digest)

    def _see(
        self,
        place: ParentDir,
        status: os.stat_result,
        job: Job,
        known: Known,
        hasher: Hasher,
        *,
        patient: bool,
    ) -> ObjectStat:
        if stat.S_ISREG(status.st_mode):
            digest, status = _digest(place, status, job, known, hasher, patient=patient)
            return self.file(status, digest)
        if stat.S_ISLNK(status.st_mode):
            return self._seen("symlink", status, target=os.readlink(place.name, dir_fd=place.fd))
        if stat.S_ISDIR(status.st_mode):
            return self._seen("directory", status, empty=_is_empty(place))
        return self._seen("other", status)

    def _seen(
        self,
        kind: ObjectType,
        status: os.stat_result,
        *,
        size: int = 0,
        digest: str | None = None,
        target: str | None = None,
        empty: bool = True,
    ) -> ObjectStat:
        return ObjectStat(
            type=kind,
            mode=stat.S_IMODE(status.st_mode),
            uid=status.st_uid,
            gid=status.st_gid,
            owner=self._accounts.owner(status.st_uid),
            group=self._accounts.group(status.st_gid),
            fingerprint=fingerprint(status),
            size=size,
            digest=digest,
            target=target,
            empty=empty,
        )


class _Moving(Exception):
    """The file was changed while it was read."""


def _digest(
    place: ParentDir,
    status: os.stat_result,
    job: Job,
    known: Known,
    hasher: Hasher,
    *,
    patient: bool,
) -> tuple[str | None, os.stat_result]:
    """Return the content's digest, and the status that it belongs to.

    The digest is None if the file can't be read or is too large.
    """
    digest = known(fingerprint(status))
    if digest is not None or status.st_size > MAX_READ:
        return digest, status
    try:
        fd = open_file(place, status)
    except PermissionError:
        return None, status
    try:
        before = os.fstat(fd)
        if not stat.S_ISREG(before.st_mode):
            raise _Moving
        digest = read_digest(fd, job, hasher=hasher)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if fingerprint(before) != fingerprint(after) and patient:
        raise _Moving
    return digest, after


def open_file(place: ParentDir, status: os.stat_result) -> int:
    """Open the object at `place` for reading. Follows no link and waits on no FIFO."""
    if status.st_uid == os.geteuid():
        return os.open(place.name, _READ | os.O_NOATIME, dir_fd=place.fd)
    return os.open(place.name, _READ, dir_fd=place.fd)


def read_digest(
    fd: int,
    job: Job,
    write: Callable[[bytes], None] | None = None,
    hasher: Hasher = hashlib.sha256,
) -> str | None:
    """Read to the end and return the digest. None if there are more than MAX_READ bytes.

    Each piece goes to `write`.
    """
    hashed = hasher()
    left = MAX_READ
    while piece := os.read(fd, _CHUNK):
        job.check()
        left -= len(piece)
        if left < 0:
            return None
        hashed.update(piece)
        if write is not None:
            write(piece)
    return f"sha256:{hashed.hexdigest()}"


def _is_empty(place: ParentDir) -> bool:
    """Return whether the directory holds nothing; one that can't be listed counts as holding
    something.
    """
    try:
        fd = os.open(
            place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.fd
        )
    except PermissionError:
        return False
    try:
        with os.scandir(fd) as entries:
            return next(entries, None) is None
    finally:
        os.close(fd)
