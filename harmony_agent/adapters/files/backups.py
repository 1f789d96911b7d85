"""Copies of files that a Score with `adopt` took over, in the agent's state directory.

Synchronous; called in worker threads. A copy is complete or not there. Only the agent can read it,
and only `forget` deletes it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from harmony_agent.adapters.files.node_write import check
from harmony_agent.adapters.files.read import open_file, read_digest
from harmony_agent.adapters.posix.atomic import (
    AtomicWrite,
    in_directory,
    make_directory,
    sync,
    temp_name,
)
from harmony_agent.adapters.posix.executor import Job
from harmony_agent.adapters.posix.path_errors import Changed
from harmony_agent.adapters.posix.safe_path import ParentDir
from harmony_agent.adapters.posix.stat_cache import fingerprint
from harmony_agent.topology.files import StatFingerprint

_NAME: Final = "former"
_FORMER_SUFFIX: Final = "~"
"""Suffix of an unfinished copy of an older agent."""


class Backups:
    """The copies in `<state directory>/former`; the directory is made when the first is kept."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._directory = os.path.join(state_dir, _NAME)

    def has(self, backup: str) -> bool:
        """Return whether there is a copy of this name; "" names none."""
        return backup != "" and os.path.isfile(os.path.join(self._directory, backup))

    def back_up(
        self, place: ParentDir, backup: str, digest: str, expect: StatFingerprint, job: Job
    ) -> None:
        """Copy the file at `place`.

        Raises Changed if it isn't as expected, and OSError. There is no new copy then.
        """
        status = check(place, expect)
        if status is None:
            raise Changed
        source = open_file(place, status)

        def unchanged() -> None:
            if fingerprint(os.fstat(source)) != expect:
                raise Changed

        try:
            with self._open() as directory, AtomicWrite(directory, backup) as copy:
                if read_digest(source, job, copy.write) != digest:
                    raise Changed
                _may_give_back(source, copy.fd)
                copy.replace(unchanged)
        finally:
            os.close(source)

    def try_owner(self, uid: int, gid: int) -> None:
        """Try whether the agent may give a file to this owner: else removal couldn't put it back.

        Raises OSError.
        """
        name = f"owner-{threading.get_ident()}"
        with self._open() as directory, AtomicWrite(directory, name) as trial:
            ours = os.fstat(trial.fd)
            if (uid, gid) != (ours.st_uid, ours.st_gid):
                os.fchown(trial.fd, uid, gid)

    def read(self, backup: str) -> int:
        """A descriptor to read the copy from."""
        return os.open(
            os.path.join(self._directory, backup), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        )

    def forget(self, backup: str) -> None:
        """Delete the copy, and an unfinished one."""
        if not os.path.isdir(self._directory):
            return
        with self._open() as directory:
            for name in (temp_name(backup), backup + _FORMER_SUFFIX, backup):
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=directory)
            sync(directory)

    @contextmanager
    def _open(self) -> Iterator[int]:
        if not os.path.isdir(self._directory):
            make_directory(self._directory, 0o700)
        with in_directory(self._state_dir) as above, in_directory(_NAME, above) as inside:
            yield inside


def _may_give_back(source: int, copy: int) -> None:
    """Try on the copy whether the agent may give a file to the owner of `source`: else removal
    couldn't put it back.
    """
    theirs, ours = os.fstat(source), os.fstat(copy)
    if (theirs.st_uid, theirs.st_gid) != (ours.st_uid, ours.st_gid):
        os.fchown(copy, theirs.st_uid, theirs.st_gid)
        os.fchown(copy, ours.st_uid, ours.st_gid)
