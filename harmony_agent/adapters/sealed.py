"""One table in one SQLite file, which is either read as it was written or refused: what the ledger stands on.

SQLite sees that pages hang together, not that bytes in them are still the same, nor a transaction that was half undone
because its journal is damaged. So each row has a digest over itself (`seal`), and the seals of all rows are folded into
one (`whole`). Knows nothing of what the rows mean.
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
            f"cannot use {path}: {cause}. Nothing was touched. Put back a good copy of {path.parent}, or move that "
            "directory away and start again: what is exactly as wanted is then taken back, the rest is reported."
        )
        self.path = path


def exists(path: Path) -> bool:
    """Whether there is anything of a database at `path`."""
    return path.exists() or any(companion.exists() for companion in _companions(path))


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


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


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=5)
    # DELETE keeps all that is committed in the one file, so that a cut of it can't pass for an older, emptier state
    database.executescript("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON;")
    return database


def create(path: Path, table: Table[T], rows: Sequence[T]) -> tuple[sqlite3.Connection, list[T]]:
    """Make the database beside, with all its rows, and rename it into place."""
    beside = _beside(path)
    tidy([path])
    for stale in _companions(path):
        stale.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    database = _connect(beside)
    with contextlib.closing(database), database:
        database.execute(table.schema)
        database.execute(_WHOLE)
        database.execute("INSERT INTO whole VALUES (0, ?)", (_hex(0),))
        database.execute(f"PRAGMA user_version = {_VERSION}")
        insert(database, table, rows)
    os.rename(beside, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return _connect(path), list(rows)


def load(path: Path, table: Table[T]) -> tuple[sqlite3.Connection, list[T]]:
    """Open what must be there and whole, and read it all."""
    if not path.exists() or path.stat().st_size == 0:
        raise LedgerUnreadable(path, "it is empty or gone")
    database: sqlite3.Connection | None = None
    try:
        database = _connect(path)
        return database, _read(path, database, table)
    except LedgerUnreadable:
        _close(database)
        raise
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        _close(database)
        raise LedgerUnreadable(path, f"it is damaged ({type(error).__name__})") from error


def _read(path: Path, database: sqlite3.Connection, table: Table[T]) -> list[T]:
    """Every row, once the file, its version and each seal are found good."""
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
    if database.execute("SELECT seals FROM whole").fetchall() != [(_hex(whole),)]:
        raise LedgerUnreadable(path, "it is damaged: it doesn't hold all of its rows, or a change half done")
    return [table.parse(row) for row in rows]


def _close(database: sqlite3.Connection | None) -> None:
    if database is not None:
        database.close()


def insert(database: sqlite3.Connection, table: Table[T], rows: Sequence[T]) -> None:
    """Put rows, all or none."""
    values = [(*row, _seal(row)) for row in map(table.row, rows)]
    if not values:
        return
    marks = ",".join("?" * len(values[0]))
    with database:
        change = 0
        for row in values:
            change ^= _seal_at(database, table, row[: len(table.key)]) ^ _folded(row[-1])
            database.execute(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", row)  # noqa: S608
        _refold(database, change)


def delete(database: sqlite3.Connection, table: Table[T], *keys: Sequence[Any]) -> None:
    """Take the rows of `keys` out, those that are there, all or none."""
    with database:
        change = 0
        for key in keys:
            change ^= _seal_at(database, table, key)
            database.execute(f"DELETE FROM {table.name} WHERE {table.where}", key)  # noqa: S608
        _refold(database, change)


def _seal_at(database: sqlite3.Connection, table: Table[T], key: Sequence[Any]) -> int:
    found = database.execute(f"SELECT seal FROM {table.name} WHERE {table.where}", key).fetchone()  # noqa: S608
    return _folded(found[0]) if found else 0


def _refold(database: sqlite3.Connection, change: int) -> None:
    """The last step of a transaction: until then the whole fits to none of what it did."""
    whole = int(database.execute("SELECT seals FROM whole").fetchone()[0], 16)
    database.execute("UPDATE whole SET seals = ?", (_hex(whole ^ change),))


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
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        ) as database:
            database.execute("BEGIN")  # one state of it, whoever writes meanwhile
            return _read(path, database, table)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise LedgerUnreadable(path, f"it cannot be read ({type(error).__name__}: {error})") from error
