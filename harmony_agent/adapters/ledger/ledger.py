"""The device's memory in two SQLite databases below the state directory.

``ledger.db`` holds what is owned: names, ids and digests. ``manifests.db`` holds the accepted
manifests, mode 0600, for their content has to come through a reboot. On any doubt (one of them
gone, cut, zeroed, of another version) opening fails and names the file: an empty ledger would say
that nothing is ours.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio

from harmony_agent.adapters.ledger import fallbacks_file, pauses_file
from harmony_agent.adapters.ledger.integrity import (
    LedgerUnreadable,
    Table,
    create,
    delete,
    insert,
    load,
    peek,
)
from harmony_agent.adapters.ledger.wal import exists, tidy
from harmony_agent.adapters.posix.thread_pool import ThreadPool
from harmony_agent.core.errors import Transient
from harmony_agent.core.pauses import Pause
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.core.reverts import Fallback
from harmony_agent.topology.control_plane import StoredManifest
from scores.canonical import canonical

__all__ = ["LedgerUnreadable", "SqliteLedger", "read_only"]

T = TypeVar("T")

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


class SqliteLedger:
    """`topology.control_plane.Ledger` on SQLite. Reads happen once, at the opening; writes in a
    worker thread.
    """

    def __init__(self, state_dir: Path, before_rebuild: Callable[[], None] = lambda: None) -> None:
        """Open, or at the very first start create. Raises LedgerUnreadable.

        `before_rebuild` is called in a worker thread once the directory is made again. It raises
        OSError if nothing may be written there.
        """
        self._paths = (state_dir / "manifests.db", state_dir / "ledger.db")
        self._before_rebuild = before_rebuild
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._open()

    def _open(self) -> None:
        manifests, ledger = self._paths
        self._writers = ThreadPool(1)
        stored = load(manifests, _MANIFESTS_TABLE) if exists(manifests) else None
        records = load(ledger, _RECORDS_TABLE) if exists(ledger) else None
        if stored is None and records is not None:  # manifests.db is made first
            raise LedgerUnreadable(manifests, "it is gone, though ledger.db is there")
        if records is None and stored is not None and stored[1]:
            raise LedgerUnreadable(ledger, "it is gone, though manifests.db knows manifests")
        self._manifests_db, self._manifests = stored or create(manifests, _MANIFESTS_TABLE, [])
        self._records_db, self._records = records or create(ledger, _RECORDS_TABLE, [])
        tidy(self._paths)

    def manifests(self) -> Sequence[StoredManifest]:
        """As they were at the opening."""
        return self._manifests

    def records(self) -> Sequence[OwnershipRecord]:
        """As they were at the opening."""
        return self._records

    def pauses(self) -> Sequence[Pause]:
        """As they are in their file."""
        return pauses_file.read(self._paths[0].parent)

    async def keep_pauses(self, pauses: Sequence[Pause]) -> None:
        """One file, on the disk when this returns."""
        await self._in_thread(lambda: pauses_file.write(self._paths[0].parent, pauses))

    def fallbacks(self) -> Sequence[Fallback]:
        """As they are in their file."""
        return fallbacks_file.read(self._paths[0].parent)

    async def keep_fallbacks(self, fallbacks: Sequence[Fallback]) -> None:
        """One file, on the disk when this returns."""
        await self._in_thread(lambda: fallbacks_file.write(self._paths[0].parent, fallbacks))

    async def accept(self, manifest: StoredManifest) -> None:
        """One transaction, on the disk when this returns."""
        await self._in_thread(lambda: insert(self._manifests_db, _MANIFESTS_TABLE, [manifest]))

    async def put(self, records: Sequence[OwnershipRecord]) -> None:
        """One transaction, on the disk when this returns."""
        await self._in_thread(lambda: insert(self._records_db, _RECORDS_TABLE, records))

    async def forget(self, *keys: Key) -> None:
        """One transaction, on the disk when this returns."""
        await self._in_thread(lambda: delete(self._records_db, _RECORDS_TABLE, *keys))

    def intact(self) -> bool:
        """Return whether both still stand in the files that are open."""
        return self._manifests_db.intact() and self._records_db.intact()

    async def rebuild(
        self, manifests: Sequence[StoredManifest], records: Sequence[OwnershipRecord]
    ) -> None:
        """Make the directory and both databases again, with all that is known in them."""
        await self._in_thread(lambda: self._rebuild(manifests, records))

    def _rebuild(
        self, manifests: Sequence[StoredManifest], records: Sequence[OwnershipRecord]
    ) -> None:
        self.close()  # here, in the writers' thread: none of them is under way
        path, ledger = self._paths
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._before_rebuild()
        self._manifests_db, self._manifests = create(path, _MANIFESTS_TABLE, manifests)
        self._records_db, self._records = create(ledger, _RECORDS_TABLE, records)

    def close(self) -> None:
        """Close both."""
        for database in (self._manifests_db, self._records_db):
            database.close()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Writes are few and go one after the other; a slow disk must not stop the loop. Raises
        Transient.
        """
        try:
            done = self._writers.start(work)
            # A write that has begun goes on to its end: memory must learn of it.
            with anyio.CancelScope(shield=True):
                await done
            return done.result()
        except (sqlite3.Error, OSError) as error:
            message = (
                f"cannot write the ledger in {self._paths[0].parent}: {error}; it is tried again"
            )
            raise Transient("LedgerUnwritable", message) from error


def _json(value: Any) -> str:
    return canonical(value).decode()


def _manifest_row(stored: StoredManifest) -> tuple[Any, ...]:
    return (
        stored.deployment,
        stored.lineage,
        stored.generation,
        stored.digest,
        stored.data,
        _json(dict(stored.generations)),
    )


def _stored(row: Sequence[Any]) -> StoredManifest:
    deployment, lineage, generation, digest_, data, generations, _seal = row
    return StoredManifest(deployment, lineage, generation, digest_, data, json.loads(generations))


_CHANGED: Final = "~changed"
_CHANGING: Final = "~changing"
"""Beside the facts, so that an agent of before reads the ledger, too."""


def _facts(record: OwnershipRecord) -> dict[str, Any]:
    facts = dict(record.facts)
    if record.changed:
        facts[_CHANGED] = record.changed
    if record.changing:
        facts[_CHANGING] = True
    return facts


def _record_row(record: OwnershipRecord) -> tuple[Any, ...]:
    return (
        record.kind,
        record.name,
        record.deployment,
        record.spec_digest,
        record.generation,
        record.on_remove,
        _json(sorted(record.claims)),
        record.applied,
        _json(_facts(record)),
        _json(list(record.needs)),
        record.ready,
    )


def _record(row: Sequence[Any]) -> OwnershipRecord:
    (
        kind,
        name,
        deployment,
        spec_digest,
        generation,
        on_remove,
        claims,
        applied,
        facts,
        needs,
        ready,
        _seal,
    ) = row
    known = json.loads(facts)
    changed, changing = known.pop(_CHANGED, ""), known.pop(_CHANGING, False)
    return OwnershipRecord(
        kind=kind,
        name=name,
        deployment=deployment,
        spec_digest=spec_digest,
        generation=generation,
        on_remove=on_remove,
        claims=frozenset(json.loads(claims)),
        applied=applied,
        facts=known,
        needs=tuple(json.loads(needs)),
        ready=ready,
        changed=changed,
        changing=changing,
    )


_MANIFESTS_TABLE: Final = Table("manifests", _MANIFESTS, ("deployment",), _manifest_row, _stored)
_RECORDS_TABLE: Final = Table("records", _RECORDS, ("kind", "name"), _record_row, _record)


def read_only(state_dir: Path) -> tuple[list[StoredManifest], list[OwnershipRecord]]:
    """Read the ledger of an agent, running or stopped. Writes nothing. Raises LedgerUnreadable."""
    return peek(state_dir / "manifests.db", _MANIFESTS_TABLE), peek(
        state_dir / "ledger.db", _RECORDS_TABLE
    )
