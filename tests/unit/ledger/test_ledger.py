"""The ledger when all is well: what is written is read back, by whoever reads; crashes while it is
made; rebuilding.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.adapters.ledger import integrity
from harmony_agent.adapters.ledger.ledger import LedgerUnreadable, SqliteLedger, read_only
from harmony_agent.core.errors import Transient
from harmony_agent.core.resources import Key, OwnershipRecord
from tests import strategies
from tests.unit.ledger.make import FILES, MANIFESTS, RECORDS, build, known, record, stored


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    build(tmp_path)
    assert known(tmp_path) == (MANIFESTS, RECORDS)
    assert read_only(tmp_path) == (MANIFESTS, RECORDS)


def test_a_first_start_knows_nothing(tmp_path: Path) -> None:
    assert known(tmp_path / "deep" / "state") == ([], [])


async def test_rows_are_replaced_and_forgotten(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    await ledger.put([record("a"), record("b")])
    await ledger.put([])
    await ledger.put([replace(record("a"), ready="other")])
    await ledger.forget(Key("File", "b"))
    await ledger.forget(Key("File", "never there"))
    await ledger.accept(stored("web", 1))
    await ledger.accept(stored("web", 2))
    ledger.close()
    assert known(tmp_path) == ([stored("web", 2)], [replace(record("a"), ready="other")])


async def test_records_are_put_all_or_none(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    with pytest.raises(Transient, match="cannot write the ledger"):
        await ledger.put([record("a"), replace(record("b"), generation=None)])  # type: ignore[arg-type]
    await ledger.put([record("c")])
    ledger.close()
    assert known(tmp_path)[1] == [record("c")]


def test_modes(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        build(tmp_path / "state")
        with pytest.raises(SystemExit):
            _hold_a_journal_open(tmp_path / "state")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    files = list((tmp_path / "state").iterdir())
    assert {path.name for path in files} == {*FILES, "ledger.db-journal"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


def _hold_a_journal_open(place: Path) -> None:
    """Leave a journal behind, as a crash does, and stop."""
    program = f"import sqlite3,os\nd=sqlite3.connect({str(place / 'ledger.db')!r})\nd.execute('PRAGMA cache_size=1')\n"
    program += "d.execute('BEGIN IMMEDIATE')\nd.execute(\"UPDATE records SET ready='x'\")\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", program], check=False)
    raise SystemExit


def test_an_unchanged_ledger_is_not_written_to_by_reading(tmp_path: Path) -> None:
    build(tmp_path)
    before = {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()
    }
    known(tmp_path)
    read_only(tmp_path)
    assert {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.iterdir()
    } == before


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a b", "ä"])
def test_a_state_directory_of_any_name(tmp_path: Path, name: str) -> None:
    build(tmp_path / name)
    assert read_only(tmp_path / name) == (MANIFESTS, RECORDS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_change_stands_beside_the_facts_where_an_agent_of_before_passes_over_it(
    tmp_path: Path,
) -> None:
    changed = replace(record("a"), changed="b:1:2", changing=True)
    asyncio.run(_put(tmp_path, changed))
    assert read_only(tmp_path)[1] == [changed]
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(records)")]
        facts = json.loads(database.execute("SELECT facts FROM records").fetchone()[0])
    assert columns[-1] == "seal"
    assert "changed" not in columns
    assert facts == {**changed.facts, "~changed": "b:1:2", "~changing": True}


async def _put(place: Path, *records: OwnershipRecord) -> None:
    ledger = SqliteLedger(place)
    await ledger.put(records)
    ledger.close()


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnreadable, match=r"manifests\.db"):
        read_only(tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_reading_while_it_is_written(tmp_path: Path) -> None:
    """Another process sees one state after another, each whole, and stops nobody from writing."""
    ledger = SqliteLedger(tmp_path)
    await ledger.accept(stored("web"))
    stop = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            manifests, records = read_only(tmp_path)
            seen.append(len(records))
            assert [manifest.deployment for manifest in manifests] == ["web"]
            assert len(records) % 2 == 0

    reader = asyncio.create_task(asyncio.to_thread(read))
    for index in range(50):
        await ledger.put([record(f"{index}-1"), record(f"{index}-2")])
    stop.set()
    await reader
    ledger.close()
    assert seen == sorted(seen)
    assert len(known(tmp_path)[1]) == 100


# -- crashes while it is made


class Killed(BaseException):
    """The process ends here."""


def _calls(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], last: int) -> int:
    """Do `act`, and be killed before step number `last` of what reaches the disk. Returns how many
    steps were done.
    """
    done = 0
    with monkeypatch.context() as patch:
        for module, name in (
            (os, "open"),
            (os, "rename"),
            (os, "fsync"),
            (sqlite3, "connect"),
            (integrity, "_insert"),
        ):
            true = getattr(module, name)

            def step(
                *args: object, _true: Callable[..., object] = true, **kwargs: object
            ) -> object:
                nonlocal done
                if done == last:
                    raise Killed
                done += 1
                return _true(*args, **kwargs)

            patch.setattr(module, name, step)
        with contextlib.suppress(Killed):
            act()
    return done


def test_a_crash_at_any_step_of_making_it_starts_again_cleanly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = _calls(monkeypatch, lambda: known(tmp_path / "whole"), 1000)
    assert steps >= 12
    for last in range(steps):
        place = tmp_path / str(last)
        assert _calls(monkeypatch, lambda place=place: SqliteLedger(place), last) == last  # type: ignore[misc]
        assert known(place) == ([], [])
        assert sorted(path.name for path in place.iterdir()) == sorted(FILES)


async def test_the_files_are_taken_away_under_it(tmp_path: Path) -> None:
    place = await asyncio.to_thread(build, tmp_path / "state")
    ledger = SqliteLedger(place)
    assert ledger.intact()
    for path in place.iterdir():
        path.unlink()
    place.rmdir()
    assert not ledger.intact()
    await ledger.rebuild(MANIFESTS, RECORDS)
    assert ledger.intact()
    await ledger.put([record("new")])
    ledger.close()
    assert known(place) == (MANIFESTS, [*RECORDS, record("new")])
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()} == {0o600}


@pytest.mark.parametrize("name", FILES)
async def test_one_file_is_replaced_under_it(tmp_path: Path, name: str) -> None:
    place = await asyncio.to_thread(build, tmp_path / "state")
    other = await asyncio.to_thread(build, tmp_path / "other", [stored("else")], [record("else")])
    ledger = SqliteLedger(place)
    os.replace(other / name, place / name)
    assert not ledger.intact()
    await ledger.rebuild(MANIFESTS, RECORDS)
    ledger.close()
    assert known(place) == (MANIFESTS, RECORDS)


def test_a_crash_at_any_step_of_rebuilding_loses_nothing_silently(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either all that was known stands there, or it is a first start or refused; never a part of
    it.
    """

    def rebuild(place: Path) -> None:
        ledger = SqliteLedger(place)
        for path in place.iterdir():
            path.unlink()
        patched.append(_calls(monkeypatch, lambda: ledger._rebuild(MANIFESTS, RECORDS), last))
        ledger.close()

    patched: list[int] = []
    last, outcomes = 0, set()
    while not patched or patched[-1] == last - 1:
        place = build(tmp_path / str(last))
        rebuild(place)
        try:
            found = known(place)
        except LedgerUnreadable as error:
            outcomes.add(f"{error.path.name} refused")
        else:
            assert found in ((MANIFESTS, RECORDS), ([], []))
            outcomes.add("whole" if found[0] else "first")
        last += 1
    assert outcomes == {"first", "ledger.db refused", "whole"}


async def test_a_full_or_locked_disk_is_for_later(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path)
    ledger._records_db.database.execute("PRAGMA busy_timeout = 1")
    with sqlite3.connect(tmp_path / "ledger.db", isolation_level=None) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Transient) as caught:
            await ledger.put([record("a")])
        other.execute("ROLLBACK")
    other.close()
    assert caught.value.reason == "LedgerUnwritable"
    await ledger.put([record("a")])
    ledger.close()
    assert known(tmp_path)[1] == [record("a")]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.sampled_from(["put", "forget"]), strategies.json_values()
        ),
        max_size=8,
    )
)
def test_after_any_history_the_ledger_holds_what_it_should(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, str, object]]
) -> None:
    place = tmp_path_factory.mktemp("ledger")
    model: dict[str, object] = {}

    async def write() -> None:
        ledger = SqliteLedger(place)
        for name, what, facts in history:
            if what == "forget":
                await ledger.forget(Key("File", name))
                model.pop(name, None)
                continue
            entry = replace(record(name), facts={"v": repr(facts)})
            await ledger.put([entry])
            model[name] = entry
        ledger.close()

    asyncio.run(write())
    assert known(place) == ([], [model[name] for name in sorted(model)])


def test_what_an_older_agent_left_unfinished_goes(tmp_path: Path) -> None:
    place = build(tmp_path)
    for name in ("ledger.db.new", "ledger.db.new-wal", "manifests.db.new"):
        (place / name).write_bytes(b"half")
    assert known(place) == (MANIFESTS, RECORDS)
    assert not list(place.glob("*.new*"))
