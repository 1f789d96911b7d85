"""One table in one SQLite file. It is read as it was written, or refused.

SQLite checks that pages hang together. It misses changed bytes in a page, and a transaction that
was half undone because its journal is damaged. So each row has a digest over itself (`seal`), and
the seals of all rows are folded into one (`whole`). The count of commits in `wal` tells whether one
was lost. The module doesn't know what the rows mean.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from harmony_agent.adapters.ledger.wal import (
    WalDatabase,
    beside,
    companions,
    connect_read_only,
    count_of,
    durable_commits,
    tidy,
)
from harmony_agent.adapters.posix.atomic import sync_directory
from harmony_agent.core.frozen import frozen
from scores.canonical import canonical, digest

T = TypeVar("T")

_VERSION: Final = 1
_INTEGRITY: Final = "CREATE TABLE whole (one INTEGER PRIMARY KEY, seals TEXT NOT NULL) STRICT"


@frozen()
class Table(Generic[T]):
    """A table: how a row is made and read. First columns: the key. Last column: the row's seal."""

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
            "in it, or move that directory away and start again: what is exactly as wanted is taken back then, and of "
            "the rest the device says LedgerLost until harmony adopt takes it back, or harmony delete --remains off."
        )
        self.path = path


def create(path: Path, table: Table[T], rows: Sequence[T]) -> tuple[WalDatabase, list[T]]:
    """Make the database beside, with all its rows, and rename it into place."""
    new = beside(path)
    tidy([path])
    for stale in companions(path):
        stale.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    opened = WalDatabase(new)
    database = opened.database
    with contextlib.closing(database), database:
        database.execute(table.schema)
        database.execute(_INTEGRITY)
        database.execute("INSERT INTO whole VALUES (0, ?)", (_hex(0),))
        database.execute(f"PRAGMA user_version = {_VERSION}")
        _insert(opened, table, rows)
    os.rename(new, path)
    sync_directory(os.fspath(path.parent))
    return WalDatabase(path), list(rows)


def load(path: Path, table: Table[T]) -> tuple[WalDatabase, list[T]]:
    """Open what must be there and whole, and read it all."""
    if not path.exists() or path.stat().st_size == 0:
        raise LedgerUnreadable(path, "it is empty or gone")
    opened: WalDatabase | None = None
    alone = False
    try:
        try:
            opened = WalDatabase(path)
        except sqlite3.OperationalError:  # perhaps the disk is full; reading alone needs no room
            opened, alone = WalDatabase(path, alone=True), True
        rows = _read(path, opened.database, table)
    except LedgerUnreadable:
        _abandon(opened)
        raise
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        _abandon(opened)
        raise LedgerUnreadable(path, f"it is damaged ({type(error).__name__})") from error
    if alone:
        opened.share()
    opened.stand()
    return opened, rows


def _read(path: Path, database: sqlite3.Connection, table: Table[T]) -> list[T]:
    """Every row, once the file, its version and each seal are found good."""
    said = durable_commits(path)  # before it is read: who writes meanwhile counts on
    found = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise LedgerUnreadable(path, "it is damaged")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        raise LedgerUnreadable(path, f"it is of version {version}, this agent reads {_VERSION}")
    rows = database.execute(f"SELECT * FROM {table.name}").fetchall()  # noqa: S608  # our own names
    if any(_row_digest(row[:-1]) != row[-1] for row in rows):
        raise LedgerUnreadable(path, "it is damaged: a row isn't as it was written")
    whole = 0
    for row in rows:
        whole ^= _folded(row[-1])
    found = database.execute("SELECT seals, one FROM whole").fetchall()
    if [seals for seals, _count in found] != [_hex(whole)]:
        raise LedgerUnreadable(
            path, "it is damaged: it doesn't hold all of its rows, or a change half done"
        )
    has_log = database.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    # The count may have come between: it is there before the log.
    if said is None and has_log and durable_commits(path) is None:
        raise LedgerUnreadable(
            path, f"the count of its commits, {count_of(path).name}, is gone or damaged"
        )
    if said is not None and said > found[0][1]:
        raise LedgerUnreadable(
            path, f"it lost what was durable: its write-ahead log {path.name}-wal was cut or lost"
        )
    return [table.parse(row) for row in rows]


def _abandon(opened: WalDatabase | None) -> None:
    if opened is not None:
        opened.abandon()


def insert(opened: WalDatabase, table: Table[T], rows: Sequence[T]) -> None:
    """Put rows, all or none."""
    if rows:
        opened.begin_log()
        _insert(opened, table, rows)


def _insert(opened: WalDatabase, table: Table[T], rows: Sequence[T]) -> None:
    values = [(*row, _row_digest(row)) for row in map(table.row, rows)]
    if not values:
        return
    database, marks = opened.database, ",".join("?" * len(values[0]))
    with database:
        change = 0
        for row in values:
            change ^= _row_digest_at(database, table, row[: len(table.key)]) ^ _folded(row[-1])
            database.execute(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", row)  # noqa: S608
        count = _refold(database, change)
    opened.counted(count)


def delete(opened: WalDatabase, table: Table[T], *keys: Sequence[Any]) -> None:
    """Delete the rows of `keys` that are there, all or none."""
    opened.begin_log()
    database = opened.database
    with database:
        change = 0
        for key in keys:
            change ^= _row_digest_at(database, table, key)
            database.execute(f"DELETE FROM {table.name} WHERE {table.where}", key)  # noqa: S608
        count = _refold(database, change)
    opened.counted(count)


def _row_digest_at(database: sqlite3.Connection, table: Table[T], key: Sequence[Any]) -> int:
    found = database.execute(f"SELECT seal FROM {table.name} WHERE {table.where}", key).fetchone()  # noqa: S608
    return _folded(found[0]) if found else 0


def _refold(database: sqlite3.Connection, change: int) -> int:
    """Do the last step of a transaction, which makes `whole` fit the rows again.

    Return the number of this commit.
    """
    count, seals = database.execute("SELECT one, seals FROM whole").fetchone()
    database.execute(
        "UPDATE whole SET one = ?, seals = ?", (count + 1, _hex(int(seals, 16) ^ change))
    )
    return int(count) + 1


def _folded(seal: str) -> int:
    return int(seal.removeprefix("sha256:"), 16)


def _hex(whole: int) -> str:
    return f"{whole:064x}"


def _row_digest(row: Sequence[Any]) -> str:
    """A digest over a row; a blob counts by its own digest."""
    return digest(
        canonical([digest(value) if isinstance(value, bytes) else value for value in row])
    )


def peek(path: Path, table: Table[T]) -> list[T]:
    """Read every row, while another process may write. Raises LedgerUnreadable."""
    try:
        with contextlib.closing(connect_read_only(path)) as database:
            database.execute("BEGIN")  # one state of it, whoever writes meanwhile
            return _read(path, database, table)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise LedgerUnreadable(
            path, f"it cannot be read ({type(error).__name__}: {error})"
        ) from error
