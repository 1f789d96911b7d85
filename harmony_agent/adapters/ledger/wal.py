"""An open SQLite database, its write-ahead log and the count of its commits.

An open database has a write-ahead log: a commit costs one sync there and four without it. A log
that is cut or lost would pass for an older state. So commits are counted twice: in the database,
and in a file beside it once they are durable. That file is never synced. After a power cut it may
be behind, and never ahead. A database that was closed in good order is one file again.

Only SQLite opens the database's file. Closing a second descriptor of it would drop SQLite's own
locks, and another process could then take the log away.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harmony_agent.adapters.posix.atomic import sync_directory, temp_name

_COUNT: Final = "-count"


def exists(path: Path) -> bool:
    """Return whether there is anything of a database at `path`."""
    return path.exists() or any(companion.exists() for companion in companions(path))


def companions(path: Path) -> list[Path]:
    """The files that may stand beside the database at `path`, and belong to it."""
    return [_with(path, suffix) for suffix in ("-wal", "-shm", "-journal", _COUNT)]


def beside(path: Path) -> Path:
    """Path of the new database before it is renamed to `path`."""
    return path.with_name(temp_name(path.name))


def count_of(path: Path) -> Path:
    """Path of the file that counts the commits of the database at `path`."""
    return _with(path, _COUNT)


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def tidy(paths: Sequence[Path]) -> None:
    """Remove the unfinished databases of a killed agent; older agents gave another name."""
    for path in paths:
        for new in (beside(path), _with(path, ".new")):
            for stale in (new, *companions(new)):
                stale.unlink(missing_ok=True)


class WalDatabase:
    """An open database and the count of its commits."""

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """`alone`: the log's index is in memory, because a full disk has no room for it.

        Nobody else can read then.
        """
        self.database = sqlite3.connect(path, check_same_thread=False, timeout=5)
        # EXTRA: with a rollback journal, a commit that a power cut undoes would be behind its count
        pragmas = "PRAGMA synchronous = EXTRA; PRAGMA cell_size_check = ON;"
        try:
            self.database.executescript("PRAGMA locking_mode = EXCLUSIVE;" * alone + pragmas)
        except sqlite3.Error:
            self.database.close()
            raise
        self._path = path
        self._count = -1
        self._log = False
        self.stand()

    def stand(self) -> None:
        """Remember the inodes of its files."""
        places = (self._path, _with(self._path, "-wal"), count_of(self._path))
        self._inodes = {place: found for place in places if (found := _inode(place))}

    def intact(self) -> bool:
        """Return whether it is open, and every path still leads to the open file.

        An unlinked log keeps nothing.
        """
        return bool(self._inodes) and all(
            _inode(place) == known for place, known in self._inodes.items()
        )

    def share(self) -> None:
        """Let others read again, if the log fits into the one file. It needs no index then."""
        with contextlib.suppress(sqlite3.Error):
            if self.database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                self.database.executescript("PRAGMA locking_mode = NORMAL; PRAGMA user_version;")

    def begin_log(self) -> None:
        """Begin the log, before the first change. A reader leaves the file as it is.

        The count is on the disk before the log. A log without a count has lost it.
        """
        if self._log:
            return
        if self._count < 0:
            self._count = os.open(
                count_of(self._path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
        if durable_commits(self._path) is None:
            self.counted(0)
            os.fsync(self._count)
            sync_directory(os.fspath(self._path.parent))
        mode = self.database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self._log = (
            mode == "wal"
        )  # where the file system can't: a rollback journal, which is right and slower
        self.database.execute(
            "PRAGMA user_version"
        ).fetchone()  # a log stands from the first look on
        self.stand()

    def counted(self, commits: int) -> None:
        """Note that so many commits are durable."""
        if self._count >= 0:
            os.pwrite(self._count, _counted(commits), 0)

    def close(self) -> None:
        """Move all into the one file, if possible. The rest stays in the log."""
        try:
            if self.database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                count_of(self._path).unlink(missing_ok=True)
        except (sqlite3.Error, OSError):
            pass  # another reads it just now, or the files were taken away: the next opening goes on from the log
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Close it and leave its files as they are.

        The last writer to close a log would write it over and remove it.
        """
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(connect_read_only(self._path)) as last,
        ):
            last.execute("PRAGMA user_version").fetchone()  # so the last is one that can't write
            self._let_go()
        self._let_go()

    def _let_go(self) -> None:
        self._inodes = {}
        self.database.close()
        if self._count >= 0:
            os.close(self._count)
        self._count = -1


def _inode(path: Path) -> int:
    """Inode of the file at `path`. 0 if there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _counted(commits: int) -> bytes:
    return b"%016x\n" % commits


def connect_read_only(path: Path) -> sqlite3.Connection:
    """A connection that can't write."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


def durable_commits(path: Path) -> int | None:
    """Read how many commits are durable. None if there is no count or it is damaged."""
    try:
        text = count_of(path).read_bytes()
        return int(text, 16) if len(text) == len(_counted(0)) else None
    except (OSError, ValueError):
        return None
