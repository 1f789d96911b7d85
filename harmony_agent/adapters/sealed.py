"""One table in one SQLite file, which is either read as it was written or refused: what the ledger stands on.

SQLite sees that pages hang together, not that bytes in them are still the same, nor a transaction that was half undone
because its journal is damaged. So each row has a digest over itself (`seal`), and the seals of all rows are folded into
one (`whole`). Knows nothing of what the rows mean.

While it is open it has a write-ahead log, for a commit there costs one sync and not four. A log that is cut or lost
would pass for an older state, so the commits are counted, in the database and, once they are durable, in a file beside
it that is never synced: after a power cut that may be behind, but never ahead. A database that was closed in good order
is one file again.

The database's file is never opened here but by SQLite: to close a second descriptor of it would take SQLite's own locks
away, and whoever else opened and closed the database then would take the log from under us.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from scores.canonical import canonical, digest

T = TypeVar("T")

_VERSION: Final = 1
_COUNT: Final = "-count"
_WHOLE: Final = "CREATE TABLE whole (one INTEGER PRIMARY KEY, seals TEXT NOT NULL) STRICT"


@dataclass(frozen=True, slots=True)
class Table(Generic[T]):
    """A table: how a row is made and read. Its first columns are the key, its last is the row's seal."""

    name: str
    schema: str
    key: tuple[str, ...]
    row: Callable[[T], tuple[Any, ...]]
    parse: Callable[[Sequence[Any]], T]

    @property
    def where(self) -> str:
        """The condition that finds one row by its key."""
        return " AND ".join(f"{column} = ?" for column in self.key)


class LedgerUnreadable(Exception):
    """A file of the ledger can't be trusted; the message names it and says what to do."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"cannot use {path}: {cause}. Nothing was touched. Put back a good copy of {path.parent} with nothing else "
            "in it, or move that directory away and start again: what is exactly as wanted is taken back then, the "
            "rest is reported."
        )
        self.path = path


def exists(path: Path) -> bool:
    """Whether there is anything of a database at `path`."""
    return path.exists() or any(companion.exists() for companion in _companions(path))


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal", _COUNT)]


def inode(path: Path) -> int:
    """Which file is at `path`; 0 where none is."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _beside(path: Path) -> Path:
    return path.with_name(path.name + ".new")


def tidy(paths: Sequence[Path]) -> None:
    """Take away what a crash while creating left beside them."""
    for path in paths:
        beside = _beside(path)
        for stale in (beside, *_companions(beside)):
            stale.unlink(missing_ok=True)


class Sealed:
    """An open database and the count of its commits."""

    def __init__(self, path: Path, *, alone: bool = False) -> None:
        """`alone`: a log's index is held in memory, and nobody else can read: where a full disk has no room for it."""
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
        """Remember which files it is in now."""
        places = (self._path, _with(self._path, "-wal"), _with(self._path, _COUNT))
        self._inodes = {place: found for place in places if (found := inode(place))}

    def intact(self) -> bool:
        """Whether it is open and every path still leads to the file that is: a log that was unlinked keeps nothing."""
        return bool(self._inodes) and all(inode(place) == known for place, known in self._inodes.items())

    def share(self) -> None:
        """Let others read again, if the log fits into the one file: then it needs no index."""
        with contextlib.suppress(sqlite3.Error):
            if self.database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                self.database.executescript("PRAGMA locking_mode = NORMAL; PRAGMA user_version;")

    def begin_log(self) -> None:
        """Before the first change: who only reads leaves the file as it is.

        The count is on the disk before the log is, so that a log without a count is one that lost it.
        """
        if self._log:
            return
        if self._count < 0:
            self._count = os.open(_with(self._path, _COUNT), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if _said_durable(self._path) is None:
            self.counted(0)
            os.fsync(self._count)
            _sync_directory(self._path.parent)
        mode = self.database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        self._log = mode == "wal"  # where the file system can't: a rollback journal, which is right and slower
        self.database.execute("PRAGMA user_version").fetchone()  # a log stands from the first look on
        self.stand()

    def counted(self, commits: int) -> None:
        """So many are durable."""
        if self._count >= 0:
            os.pwrite(self._count, _counted(commits), 0)

    def close(self) -> None:
        """All into the one file, if that can be done; what can't be is in the log."""
        try:
            if self.database.execute("PRAGMA journal_mode = DELETE").fetchone()[0] == "delete":
                _with(self._path, _COUNT).unlink(missing_ok=True)
        except (sqlite3.Error, OSError):
            pass  # another reads it just now, or the files were taken away: the next opening goes on from the log
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go of it, and leave its files as they are: the last to close a log would write it over and away."""
        with contextlib.suppress(sqlite3.Error), contextlib.closing(_reader(self._path)) as reader:
            reader.execute("PRAGMA user_version").fetchone()  # so the last is one that can't write
            self._let_go()
        self._let_go()

    def _let_go(self) -> None:
        self._inodes = {}
        self.database.close()
        if self._count >= 0:
            os.close(self._count)
        self._count = -1


def _counted(commits: int) -> bytes:
    return b"%016x\n" % commits


def _reader(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)


def _said_durable(path: Path) -> int | None:
    """How many commits were said to be durable; None where nobody counted, or the count is damaged."""
    try:
        text = _with(path, _COUNT).read_bytes()
        return int(text, 16) if len(text) == len(_counted(0)) else None
    except (OSError, ValueError):
        return None


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _sync_directory(folder: Path) -> None:
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def create(path: Path, table: Table[T], rows: Sequence[T]) -> tuple[Sealed, list[T]]:
    """Make the database beside, with all its rows, and rename it into place."""
    beside = _beside(path)
    tidy([path])
    for stale in _companions(path):
        stale.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    sealed = Sealed(beside)
    database = sealed.database
    with contextlib.closing(database), database:
        database.execute(table.schema)
        database.execute(_WHOLE)
        database.execute("INSERT INTO whole VALUES (0, ?)", (_hex(0),))
        database.execute(f"PRAGMA user_version = {_VERSION}")
        _insert(sealed, table, rows)
    os.rename(beside, path)
    _sync_directory(path.parent)
    return Sealed(path), list(rows)


def load(path: Path, table: Table[T]) -> tuple[Sealed, list[T]]:
    """Open what must be there and whole, and read it all."""
    if not path.exists() or path.stat().st_size == 0:
        raise LedgerUnreadable(path, "it is empty or gone")
    sealed: Sealed | None = None
    alone = False
    try:
        try:
            sealed = Sealed(path)
        except sqlite3.OperationalError:  # it needs no room to be read: a full disk is no reason to know nothing
            sealed, alone = Sealed(path, alone=True), True
        rows = _read(path, sealed.database, table)
    except LedgerUnreadable:
        _abandon(sealed)
        raise
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        _abandon(sealed)
        raise LedgerUnreadable(path, f"it is damaged ({type(error).__name__})") from error
    if alone:
        sealed.share()
    sealed.stand()
    return sealed, rows


def _read(path: Path, database: sqlite3.Connection, table: Table[T]) -> list[T]:
    """Every row, once the file, its version and each seal are found good."""
    said = _said_durable(path)  # before it is read: who writes meanwhile counts on
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise LedgerUnreadable(path, "it is damaged")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        raise LedgerUnreadable(path, f"it is of version {version}, this agent reads {_VERSION}")
    rows = database.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608  # our own names
    if any(_seal(row[:-1]) != row[-1] for row in rows):
        raise LedgerUnreadable(path, "it is damaged: a row isn't as it was written")
    whole = 0
    for row in rows:
        whole ^= _folded(row[-1])
    found = database.execute("SELECT seals, one FROM whole").fetchall()
    if [seals for seals, _count in found] != [_hex(whole)]:
        raise LedgerUnreadable(path, "it is damaged: it doesn't hold all of its rows, or a change half done")
    has_log = database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    if said is None and has_log and _said_durable(path) is None:  # it may have come between: it is there before the log
        raise LedgerUnreadable(path, f"the count of its commits, {_with(path, _COUNT).name}, is gone or damaged")
    if said is not None and said > found[0][1]:
        raise LedgerUnreadable(path, f"it lost what was durable: its write-ahead log {path.name}-wal was cut or lost")
    return [table.parse(row) for row in rows]


def _abandon(sealed: Sealed | None) -> None:
    if sealed is not None:
        sealed.abandon()


def insert(sealed: Sealed, table: Table[T], rows: Sequence[T]) -> None:
    """Put rows, all or none."""
    if rows:
        sealed.begin_log()
        _insert(sealed, table, rows)


def _insert(sealed: Sealed, table: Table[T], rows: Sequence[T]) -> None:
    values = [(*row, _seal(row)) for row in map(table.row, rows)]
    if not values:
        return
    database, marks = sealed.database, ",".join("?" * len(values[0]))
    with database:
        change = 0
        for row in values:
            change ^= _seal_at(database, table, row[: len(table.key)]) ^ _folded(row[-1])
            database.execute(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", row)  # noqa: S608
        count = _refold(database, change)
    sealed.counted(count)


def delete(sealed: Sealed, table: Table[T], *keys: Sequence[Any]) -> None:
    """Take the rows of `keys` out, those that are there, all or none."""
    sealed.begin_log()
    database = sealed.database
    with database:
        change = 0
        for key in keys:
            change ^= _seal_at(database, table, key)
            database.execute(f"DELETE FROM {table.name} WHERE {table.where}", key)  # noqa: S608
        count = _refold(database, change)
    sealed.counted(count)


def _seal_at(database: sqlite3.Connection, table: Table[T], key: Sequence[Any]) -> int:
    found = database.execute(f"SELECT seal FROM {table.name} WHERE {table.where}", key).fetchone()  # noqa: S608
    return _folded(found[0]) if found else 0


def _refold(database: sqlite3.Connection, change: int) -> int:
    """The last step of a transaction: until then the whole fits to none of what it did. The number of this commit."""
    count, seals = database.execute("SELECT one, seals FROM whole").fetchone()
    database.execute("UPDATE whole SET one = ?, seals = ?", (count + 1, _hex(int(seals, 16) ^ change)))
    return int(count) + 1


def _folded(seal: str) -> int:
    return int(seal.removeprefix("sha256:"), 16)


def _hex(whole: int) -> str:
    return f"{whole:064x}"


def _seal(row: Sequence[Any]) -> str:
    """A digest over a row; a blob counts by its own digest."""
    return digest(canonical([digest(value) if isinstance(value, bytes) else value for value in row]))


def peek(path: Path, table: Table[T]) -> list[T]:
    """Every row, though another process may be writing; writes nothing. Raises LedgerUnreadable."""
    try:
        with contextlib.closing(_reader(path)) as database:
            database.execute("BEGIN")  # one state of it, whoever writes meanwhile
            return _read(path, database, table)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise LedgerUnreadable(path, f"it cannot be read ({type(error).__name__}: {error})") from error
