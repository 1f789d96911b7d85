"""The device's memory in two SQLite databases below the state directory.

``ledger.db`` holds what is owned: names, ids and digests. ``manifests.db`` holds the accepted manifests, mode 0600, for
their content has to come through a reboot. On any doubt (one of them gone, cut, zeroed, of another version) opening
fails and names the file: an empty ledger would say that nothing is ours. SQLite sees that pages hang together, not
that bytes in them are still the same, so each row has a digest over itself (`seal`).
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio.to_thread

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconcile import Key, Record
from harmony_agent.topology.control import Stored
from scores.canonical import canonical, digest

T = TypeVar("T")

_VERSION: Final = 1
_MANIFESTS: Final = """
CREATE TABLE manifests (
    deployment TEXT PRIMARY KEY, lineage TEXT NOT NULL, generation INTEGER NOT NULL,
    digest TEXT NOT NULL, data BLOB NOT NULL, generations TEXT NOT NULL, seal TEXT NOT NULL
) STRICT, WITHOUT ROWID
"""
_RECORDS: Final = """
CREATE TABLE records (
    kind TEXT NOT NULL, name TEXT NOT NULL, deployment TEXT NOT NULL, spec_digest TEXT NOT NULL,
    generation INTEGER NOT NULL, on_remove TEXT NOT NULL, claims TEXT NOT NULL, applied TEXT NOT NULL,
    facts TEXT NOT NULL, needs TEXT NOT NULL, ready TEXT NOT NULL, seal TEXT NOT NULL, PRIMARY KEY (kind, name)
) STRICT, WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class _Table(Generic[T]):
    """A table: how a row is made and read; its last column is the row's seal."""

    name: str
    schema: str
    row: Callable[[T], tuple[Any, ...]]
    parse: Callable[[Sequence[Any]], T]


class LedgerUnreadable(Exception):
    """A file of the ledger can't be trusted; the message names it and says what to do."""

    def __init__(self, path: Path, cause: str) -> None:
        super().__init__(
            f"cannot use {path}: {cause}. Nothing was touched. Put back a good copy of {path.parent}, or move that "
            "directory away and start again: what is exactly as wanted is then taken back, the rest is reported."
        )
        self.path = path


class SqliteLedger:
    """`topology.control.Ledger` on SQLite. Reads happen once, at the opening; writes in a worker thread."""

    def __init__(self, state_dir: Path) -> None:
        """Open, or at the very first start create. Raises LedgerUnreadable."""
        self._paths = (state_dir / "manifests.db", state_dir / "ledger.db")
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open()

    def _open(self) -> None:
        manifests, ledger = self._paths
        self._write = anyio.CapacityLimiter(1)
        stored = _load(manifests, _MANIFESTS_TABLE) if _exists(manifests) else None
        records = _load(ledger, _RECORDS_TABLE) if _exists(ledger) else None
        if stored is None and records is not None:  # manifests.db is made first
            raise LedgerUnreadable(manifests, "it is gone, though ledger.db is there")
        if records is None and stored is not None and stored[1]:
            raise LedgerUnreadable(ledger, "it is gone, though manifests.db knows manifests")
        self._manifests_db, self._manifests = stored or _create(manifests, _MANIFESTS_TABLE, [])
        self._records_db, self._records = records or _create(ledger, _RECORDS_TABLE, [])
        self._inodes = [_inode(path) for path in self._paths]

    def manifests(self) -> Sequence[Stored]:
        """As they were at the opening."""
        return self._manifests

    def records(self) -> Sequence[Record]:
        """As they were at the opening."""
        return self._records

    async def accept(self, manifest: Stored) -> None:
        """One transaction, on the disk when this returns."""
        await self._in_thread(lambda: _insert(self._manifests_db, _MANIFESTS_TABLE, [manifest]))

    async def put(self, records: Sequence[Record]) -> None:
        """One transaction, on the disk when this returns."""
        await self._in_thread(lambda: _insert(self._records_db, _RECORDS_TABLE, records))

    async def forget(self, key: Key) -> None:
        """One transaction, on the disk when this returns."""

        def delete() -> None:
            with self._records_db as database:
                database.execute("DELETE FROM records WHERE kind = ? AND name = ?", key)

        await self._in_thread(delete)

    def intact(self) -> bool:
        """Whether both paths still lead to the files that are open."""
        return [_inode(path) for path in self._paths] == self._inodes

    async def rebuild(self, manifests: Sequence[Stored], records: Sequence[Record]) -> None:
        """Make the directory and both databases again, each put in place with all that is known in it."""
        self.close()
        await self._in_thread(lambda: self._rebuild(manifests, records))

    def _rebuild(self, manifests: Sequence[Stored], records: Sequence[Record]) -> None:
        path, ledger = self._paths
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._manifests_db, self._manifests = _create(path, _MANIFESTS_TABLE, manifests)
        self._records_db, self._records = _create(ledger, _RECORDS_TABLE, records)
        self._inodes = [_inode(path) for path in self._paths]

    def close(self) -> None:
        """Close both; SQLite then folds its write-ahead log in."""
        for database in (self._manifests_db, self._records_db):
            with contextlib.suppress(sqlite3.Error):  # nothing is pending; the files may be gone
                database.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Writes are few and go one after the other; a slow disk must not stop the loop. Raises Transient."""
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._write)
        except (sqlite3.Error, OSError) as error:
            message = f"cannot write the ledger in {self._paths[0].parent}: {error}; it is tried again"
            raise Transient("LedgerUnwritable", message) from error


def _exists(path: Path) -> bool:
    return path.exists() or any(companion.exists() for companion in _companions(path))


def _companions(path: Path) -> list[Path]:
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=5)
    # DELETE keeps all that is committed in the one file, so that a cut of it can't pass for an older, emptier state
    database.executescript("PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA cell_size_check = ON;")
    return database


def _create(path: Path, table: _Table[T], rows: Sequence[T]) -> tuple[sqlite3.Connection, list[T]]:
    """Make the database beside, with all its rows, and rename it into place."""
    beside = path.with_name(path.name + ".new")
    for stale in (beside, *_companions(beside), *_companions(path)):
        stale.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    os.close(descriptor)
    database = _connect(beside)
    with contextlib.closing(database), database:
        database.execute(table.schema)
        database.execute(f"PRAGMA user_version = {_VERSION}")
        _insert(database, table, rows)
    os.rename(beside, path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return _connect(path), list(rows)


def _load(path: Path, table: _Table[T]) -> tuple[sqlite3.Connection, list[T]]:
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


def _read(path: Path, database: sqlite3.Connection, table: _Table[T]) -> list[T]:
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
    return [table.parse(row) for row in rows]


def _close(database: sqlite3.Connection | None) -> None:
    if database is not None:
        database.close()


def _insert(database: sqlite3.Connection, table: _Table[T], rows: Sequence[T]) -> None:
    values = [(*row, _seal(row)) for row in map(table.row, rows)]
    if not values:
        return
    marks = ",".join("?" * len(values[0]))
    with database:
        database.executemany(f"INSERT OR REPLACE INTO {table.name} VALUES ({marks})", values)  # noqa: S608


def _seal(row: Sequence[Any]) -> str:
    """A digest over a row; a blob counts by its own digest."""
    return digest(canonical([digest(value) if isinstance(value, bytes) else value for value in row]))


def _json(value: Any) -> str:
    return canonical(value).decode()


def _manifest_row(stored: Stored) -> tuple[Any, ...]:
    return (
        stored.deployment,
        stored.lineage,
        stored.generation,
        stored.digest,
        stored.data,
        _json(dict(stored.generations)),
    )


def _stored(row: Sequence[Any]) -> Stored:
    deployment, lineage, generation, digest_, data, generations, _seal = row
    return Stored(deployment, lineage, generation, digest_, data, json.loads(generations))


def _record_row(record: Record) -> tuple[Any, ...]:
    return (
        record.kind,
        record.name,
        record.deployment,
        record.spec_digest,
        record.generation,
        record.on_remove,
        _json(sorted(record.claims)),
        record.applied,
        _json(dict(record.facts)),
        _json(list(record.needs)),
        record.ready,
    )


def _record(row: Sequence[Any]) -> Record:
    kind, name, deployment, spec_digest, generation, on_remove, claims, applied, facts, needs, ready, _seal = row
    return Record(
        kind=kind,
        name=name,
        deployment=deployment,
        spec_digest=spec_digest,
        generation=generation,
        on_remove=on_remove,
        claims=frozenset(json.loads(claims)),
        applied=applied,
        facts=json.loads(facts),
        needs=tuple(json.loads(needs)),
        ready=ready,
    )


_MANIFESTS_TABLE: Final = _Table("manifests", _MANIFESTS, _manifest_row, _stored)
_RECORDS_TABLE: Final = _Table("records", _RECORDS, _record_row, _record)


def read_only(state_dir: Path) -> tuple[list[Stored], list[Record]]:
    """What an agent, running or not, has in its ledger; writes nothing. Raises LedgerUnreadable."""
    return _peek(state_dir / "manifests.db", _MANIFESTS_TABLE), _peek(state_dir / "ledger.db", _RECORDS_TABLE)


def _peek(path: Path, table: _Table[T]) -> list[T]:
    try:
        with contextlib.closing(
            sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        ) as database:
            database.execute("BEGIN")  # one state of it, whoever writes meanwhile
            return _read(path, database, table)
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise LedgerUnreadable(path, f"it cannot be read ({type(error).__name__}: {error})") from error
