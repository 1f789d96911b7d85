"""A small ledger on the disk, what stands in it, and a copy that can be damaged over and over."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

from harmony_agent.adapters.ledger.ledger import LedgerUnreadable, SqliteLedger
from harmony_agent.core.resources import OwnershipRecord
from harmony_agent.topology.control_plane import StoredManifest
from scores.canonical import canonical, digest

FILES = ("manifests.db", "ledger.db")
Known = tuple[list[StoredManifest], list[OwnershipRecord]]


def stored(name: str, generation: int = 1, size: int = 20) -> StoredManifest:
    data = canonical({"content": "x" * size, "name": name})
    lineage = "7b0e4a52-1111-4222-8333-444455556666"
    return StoredManifest(
        name, lineage, generation, digest(data), data, {"File/a": 1, "File/é": generation}
    )


def record(name: str, deployment: str = "web") -> OwnershipRecord:
    return OwnershipRecord(
        kind="File",
        name=name,
        deployment=deployment,
        spec_digest=digest(name.encode()),
        generation=2,
        on_remove="delete",
        claims=frozenset({f"path:/srv/{name}", f"path:/srv/old-{name}"}),
        applied=digest(name.encode()),
        facts={"digest": digest(b"content"), "made": True, "nested": {"é": [1, None]}},
        needs=("File/z", "SystemdUnit/x@a\\x2db.service"),
        ready="boot-1:42",
    )


MANIFESTS = [stored("db"), stored("web", 7)]
RECORDS = [
    record("a"),
    record("b"),
    replace(record("c", "db"), ready="", needs=(), facts={}, claims=frozenset()),
]


def build(
    place: Path,
    manifests: list[StoredManifest] = MANIFESTS,
    records: list[OwnershipRecord] = RECORDS,
) -> Path:
    """A ledger with these, closed."""

    async def fill() -> None:
        ledger = SqliteLedger(place)
        for manifest in manifests:
            await ledger.accept(manifest)
        await ledger.put(records)
        ledger.close()

    asyncio.run(fill())
    return place


def known(place: Path) -> Known:
    """What the ledger in `place` says. Raises LedgerUnreadable."""
    ledger = SqliteLedger(place)
    try:
        return list(ledger.manifests()), list(ledger.records())
    finally:
        ledger.close()


class Damaged:
    """Copies of a good ledger in one place, each damaged in another way."""

    def __init__(self, good: Path, place: Path) -> None:
        self.good = {path.name: path.read_bytes() for path in good.iterdir()}
        self.place = place
        self.expected: Known = known(shutil.copytree(good, place))
        self.refused = 0
        self.same = 0
        self._last = FILES[0]
        self.or_else: Known | None = None

    def try_with(self, name: str, data: bytes | None) -> None:
        """The file `name` with other bytes (None: gone): the same rows are read, or the file is
        named and kept.
        """
        for path in self.place.iterdir():
            if path.name not in self.good:
                path.unlink()
        hot = len(self.good) > len(
            FILES
        )  # opening it rolls back: each file may be another afterwards
        for other in self.good if hot else {name, self._last}:
            (self.place / other).write_bytes(self.good[other])
        self._last = name
        if data is None:
            (self.place / name).unlink()
        else:
            (self.place / name).write_bytes(data)
        try:
            found = known(self.place)
        except LedgerUnreadable as error:
            refused = str(error)
        else:
            assert found in (self.expected, self.or_else)
            self.same += 1
            return
        assert any(str(self.place / file) in refused for file in FILES)
        self.refused += 1
