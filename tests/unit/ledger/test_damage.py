"""The ledger damaged in every way that a disk, a power cut or a hand can: the same rows are read,
or it is refused.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from harmony_agent.adapters.ledger.integrity import load
from harmony_agent.adapters.ledger.ledger import _RECORDS_TABLE as RECORDS_TABLE
from harmony_agent.adapters.ledger.ledger import LedgerUnreadable, SqliteLedger, read_only
from tests.unit.ledger.make import FILES, MANIFESTS, RECORDS, Damaged, build, known, record, stored

PAGE = 4096


@pytest.fixture
def damaged(quick_path: Path) -> Damaged:
    return Damaged(build(quick_path / "good"), quick_path / "damaged")


@pytest.mark.parametrize("name", FILES)
def test_cut_at_every_length(damaged: Damaged, name: str) -> None:
    data = damaged.good[name]
    for length in range(len(data)):
        damaged.try_with(name, data[:length])
    assert damaged.refused == len(data)


@pytest.mark.parametrize("name", FILES)
def test_zeroed_in_every_place(damaged: Damaged, name: str) -> None:
    data = damaged.good[name]
    for size in (16, 512, PAGE):
        for start in range(0, len(data), size):
            damaged.try_with(name, data[:start] + bytes(size) + data[start + size :])
    assert damaged.refused > 20
    damaged.try_with(name, bytes(len(data)))
    damaged.try_with(name, bytes(1))


@pytest.mark.parametrize("name", FILES)
def test_any_byte_changed(damaged: Damaged, name: str) -> None:
    """Every byte that SQLite's structure or a row uses, and some of those that nothing does."""
    data, chance = damaged.good[name], random.Random(7)
    for place in range(len(data)):
        if data[place] or place % PAGE < 128 or chance.random() < 0.02:
            changed = data[place] ^ chance.randrange(1, 256)
            damaged.try_with(name, data[:place] + bytes([changed]) + data[place + 1 :])
    assert damaged.refused > 500


@pytest.mark.parametrize("name", FILES)
def test_garbage_and_other_files(damaged: Damaged, name: str) -> None:
    data, chance = damaged.good[name], random.Random(3)
    other = damaged.good[FILES[1 - FILES.index(name)]]
    wrong = [
        b"",
        b"\n",
        b"hello",
        chance.randbytes(len(data)),
        data[:100] + chance.randbytes(len(data) - 100),
        other,
    ]
    wrong += [data[:PAGE] + chance.randbytes(PAGE) + data[2 * PAGE :], data[PAGE:], b"x" + data]
    for content in wrong:
        damaged.try_with(name, content)
    assert damaged.refused == len(wrong)
    damaged.try_with(name, data + bytes(10))
    damaged.try_with(name, data + chance.randbytes(PAGE))


@pytest.mark.parametrize("name", FILES)
def test_one_of_the_two_is_gone(damaged: Damaged, name: str) -> None:
    damaged.try_with(name, None)
    assert damaged.refused == 1
    with pytest.raises(LedgerUnreadable, match=f"cannot use .*{name}"):
        known(damaged.place)


def test_manifests_gone_and_nothing_owned(tmp_path: Path) -> None:
    """No resource is ours, yet the fence was in it."""
    build(tmp_path, [stored("web")], [])
    (tmp_path / "manifests.db").unlink()
    with pytest.raises(LedgerUnreadable, match=r"manifests\.db"):
        known(tmp_path)


def test_only_a_journal_is_left(tmp_path: Path) -> None:
    build(tmp_path)
    for name in FILES:
        (tmp_path / name).rename(tmp_path / f"{name}-journal")
    with pytest.raises(LedgerUnreadable, match=r"manifests\.db"):
        known(tmp_path)


def _sql(path: Path, *statements: str) -> None:
    database = sqlite3.connect(path)
    with database:
        for statement in statements:
            database.execute(statement)
    database.close()


SQL = {
    "not UTF-8": ("ledger.db", "UPDATE records SET deployment = CAST(x'ff' AS TEXT)"),
    "not UTF-8 in a manifest": ("manifests.db", "UPDATE manifests SET lineage = CAST(x'c328' AS TEXT)"),
    "not JSON": ("ledger.db", "UPDATE records SET facts = '{' WHERE name = 'a'"),
    "other JSON": ("ledger.db", "UPDATE records SET claims = '{\"a\":1}' WHERE name = 'a'"),
    "another value": ("ledger.db", "UPDATE records SET on_remove = 'orphan' WHERE name = 'b'"),
    "another generation": ("manifests.db", "UPDATE manifests SET generation = 1 WHERE deployment = 'web'"),
    "other content": ("manifests.db", "UPDATE manifests SET data = x'00'"),
    "a row gone": ("ledger.db", "DELETE FROM records WHERE name = 'a'"),
    "all rows gone": ("ledger.db", "DELETE FROM records"),
    "all manifests gone": ("manifests.db", "DELETE FROM manifests"),
    "a row more": ("ledger.db", "INSERT INTO records SELECT kind, 'z', deployment, spec_digest, generation, on_remove,"
                   " claims, applied, facts, needs, ready, seal FROM records WHERE name = 'a'"),
    "a row under another name": ("ledger.db", "UPDATE records SET name = 'z' WHERE name = 'a'"),
    "a seal of another row": ("ledger.db", "UPDATE records SET seal = (SELECT seal FROM records WHERE name = 'b')"),
    "no whole": ("ledger.db", "DELETE FROM whole"),
    "two wholes": ("ledger.db", "INSERT INTO whole SELECT one + 1, seals FROM whole"),
    "no table": ("ledger.db", "DROP TABLE records"),
    "a newer version": ("ledger.db", "PRAGMA user_version = 2"),
    "no version": ("manifests.db", "PRAGMA user_version = 0"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "statement"), SQL.values(), ids=SQL)
def test_rows_that_are_not_as_they_were_written(tmp_path: Path, name: str, statement: str) -> None:
    build(tmp_path)
    _sql(tmp_path / name, statement)
    before = (tmp_path / name).read_bytes()
    with pytest.raises(LedgerUnreadable, match=name) as caught:
        known(tmp_path)
    assert "Nothing was touched" in str(caught.value)
    assert caught.value.path == tmp_path / name
    assert (tmp_path / name).read_bytes() == before
    with pytest.raises(LedgerUnreadable, match=name):
        read_only(tmp_path)


def test_another_version_is_said_to_be_one(tmp_path: Path) -> None:
    build(tmp_path)
    _sql(tmp_path / "ledger.db", "PRAGMA user_version = 9")
    with pytest.raises(LedgerUnreadable, match="it is of version 9, this agent reads 1"):
        known(tmp_path)


def test_no_content_is_told(tmp_path: Path) -> None:
    build(tmp_path / "good", [stored("web", 7)], [record("hunter2"), record("b")])
    for name, statement in SQL.values():
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        shutil.copytree(tmp_path / "good", tmp_path / "copy")
        _sql(tmp_path / "copy" / name, statement.replace("'a'", "'hunter2'"))
        with pytest.raises(LedgerUnreadable) as caught:
            known(tmp_path / "copy")
        told = f"{caught.value} {caught.value.__cause__!r}"
        assert "hunter2" not in told
        assert "xxxx" not in told


# -- killed in the middle of a transaction

WRITER = textwrap.dedent(
    """
    import itertools, os, sys
    from pathlib import Path
    from harmony_agent.adapters.ledger import integrity, ledger
    from tests.unit.ledger.make import record, stored

    place, what, trigger, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    opened = ledger.SqliteLedger(place)
    database = (opened._manifests_db if what == "accept" else opened._records_db).database
    database.execute("PRAGMA cache_size = 1")  # pages reach the file before the commit
    steps = itertools.count(1)
    database.create_function("step", 0, lambda: os.kill(os.getpid(), 9) if next(steps) == last else None)
    database.execute(f"CREATE TEMP TRIGGER t AFTER {trigger} BEGIN SELECT step(); END")
    if what == "accept":
        integrity.insert(opened._manifests_db, ledger._MANIFESTS_TABLE, [stored(f"n{i}", 1, 900) for i in range(60)])
    else:
        integrity.insert(opened._records_db, ledger._RECORDS_TABLE, [record(f"r{i}", "db") for i in range(0, 99, 2)])
    """
)
KILLS = [
    ("accept", "INSERT ON manifests", 6),
    ("accept", "INSERT ON manifests", 45),
    ("accept", "UPDATE ON whole", 1),
    ("put", "INSERT ON records", 6),
    ("put", "INSERT ON records", 45),
    ("put", "UPDATE ON whole", 1),
]


@pytest.mark.parametrize(("what", "trigger", "step"), KILLS)
def test_killed_in_a_transaction_and_then_cut(
    quick_path: Path, what: str, trigger: str, step: int
) -> None:
    """What was committed is read back; with the log damaged as well: that, all of the transaction,
    or nothing.
    """
    records = [record(f"r{index}") for index in range(40)]
    good = build(
        quick_path / "good", [*MANIFESTS, *(stored(f"m{i}", 1, 900) for i in range(10))], records
    )
    expected = known(good)
    name = "manifests.db" if what == "accept" else "ledger.db"
    hot, done = (shutil.copytree(good, quick_path / place) for place in ("hot", "done"))
    killed = [
        subprocess.run(
            [sys.executable, "-c", WRITER, str(place), what, trigger, str(count)], check=False
        ).returncode
        for place, count in ((hot, step), (done, 1000))
    ]
    assert killed == [-signal.SIGKILL, 0]
    assert (hot / f"{name}-wal").exists()
    damaged = Damaged(hot, quick_path / "damaged")
    assert damaged.expected == expected
    damaged.or_else = known(done)
    for file in (f"{name}-wal", name):
        data = damaged.good[file]
        edges = {edge + near for edge in range(0, len(data) + 1, 1024) for near in (-1, 0, 9)}
        for length in sorted(length for length in edges if 0 <= length < len(data)):
            damaged.try_with(file, data[:length])
        for start in range(0, len(data), 2048):
            damaged.try_with(file, data[:start] + bytes(512) + data[start + 512 :])
    damaged.try_with(f"{name}-wal", None)
    assert damaged.same


LOOP = textwrap.dedent(
    """
    import asyncio, sys
    from pathlib import Path
    from harmony_agent.adapters.ledger.ledger import SqliteLedger
    from harmony_agent.core.resources import Key
    from tests.unit.ledger.make import record, stored

    async def main():
        ledger = SqliteLedger(Path(sys.argv[1]))
        for count in range(10**6):
            await ledger.put([record(f"{count}-{part}") for part in "abc"])
            await ledger.accept(stored("web", count + 1))
            if count > 3:
                await ledger.forget(Key("File", f"{count - 3}-a"))
            print(count, flush=True)

    asyncio.run(main())
    """
)


@pytest.mark.parametrize("count", [3, 8, 17])
def test_killed_while_it_writes_all_that_was_said_to_be_durable_is(
    tmp_path: Path, count: int
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LOOP, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            if int(line) >= count:
                break
        writer.send_signal(signal.SIGKILL)
        said = max([count, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    manifests, records = known(tmp_path)
    names = {entry.name for entry in records}
    assert manifests[0].generation in (said + 1, said + 2)
    assert {f"{said}-{part}" for part in "abc"} <= names
    assert {f"{index}-b" for index in range(said + 1)} <= names
    assert f"{said - 3}-a" not in names or said <= 3


def test_a_good_copy_put_back_is_taken(tmp_path: Path) -> None:
    build(tmp_path / "state")
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    (tmp_path / "state" / "ledger.db").write_bytes(b"")
    with pytest.raises(LedgerUnreadable, match="Put back a good copy"):
        known(tmp_path / "state")
    shutil.copytree(tmp_path / "backup", tmp_path / "state", dirs_exist_ok=True)
    assert known(tmp_path / "state") == (MANIFESTS, RECORDS)


# -- killed while it has a write-ahead log


def _killed(place: Path, rows: int) -> Path:
    """A ledger of a writer that was killed after so many commits."""
    program = LOOP.replace("range(10**6)", f"range({rows})") + "\n"
    program = program.replace(
        "asyncio.run(main())", "asyncio.run(main()); import os; os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", program, str(place)], stdout=subprocess.DEVNULL, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    return place


@pytest.mark.parametrize("name", FILES)
def test_a_log_that_is_cut_or_damaged_or_lost_is_noticed(quick_path: Path, name: str) -> None:
    """Every commit in it was said to be durable, so nothing that lacks one is taken for the
    truth.
    """
    damaged = Damaged(_killed(quick_path / "killed", 3), quick_path / "damaged")
    log = f"{name}-wal"
    data = damaged.good[log]
    for length in {*range(0, len(data), 509), 31, 32, 33, len(data) - 1}:
        damaged.try_with(log, data[:length])
    for start in range(0, len(data), 1021):
        damaged.try_with(log, data[:start] + bytes(64) + data[start + 64 :])
    damaged.try_with(log, bytes(len(data)))
    damaged.try_with(log, None)
    damaged.try_with(f"{name}-count", None)
    for content in (b"", b"0", b"garbage and more!", bytes(17)):
        damaged.try_with(f"{name}-count", content)
    assert damaged.refused > len(data) // 600
    damaged.try_with(
        f"{name}-count", b"%016x\n" % 0
    )  # as after a power cut, for it is never synced
    damaged.try_with(f"{name}-shm", None)
    assert damaged.same >= 2


def test_a_ledger_of_an_agent_without_a_log_is_read_and_goes_on(tmp_path: Path) -> None:
    build(tmp_path)
    for name in FILES:
        _sql(tmp_path / name, "UPDATE whole SET one = 0")
    assert known(tmp_path) == (MANIFESTS, RECORDS)
    assert read_only(tmp_path) == (MANIFESTS, RECORDS)


# -- who else has to do with it


def _open_and_close(path: Path) -> None:
    """As an operator's shell does, in a process of its own."""
    program = "import sqlite3, sys; one = sqlite3.connect(sys.argv[1]); one.execute('PRAGMA quick_check'); one.close()"
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)


async def test_who_opens_and_closes_it_beside_us_takes_no_log_away(tmp_path: Path) -> None:
    """After a kill, too: SQLite's locks last while it is open, for nobody else in the process opens
    the file.
    """
    place = await asyncio.to_thread(_killed, tmp_path / "state", 2)
    ledger = SqliteLedger(place)
    try:
        for name in FILES:
            await asyncio.to_thread(_open_and_close, place / name)
            assert (place / f"{name}-wal").exists()
        assert ledger.intact()
        await ledger.put([record("later")])
        await asyncio.to_thread(shutil.copytree, place, tmp_path / "after-a-power-cut")
    finally:
        ledger.close()
    assert record("later") in known(tmp_path / "after-a-power-cut")[1]


@pytest.mark.parametrize("suffix", ["-wal", "-count"])
async def test_a_log_taken_away_under_it_is_noticed_and_made_good(
    tmp_path: Path, suffix: str
) -> None:
    ledger = SqliteLedger(tmp_path / "state")
    await ledger.put(RECORDS)
    assert ledger.intact()
    (tmp_path / "state" / f"ledger.db{suffix}").unlink()
    assert not ledger.intact()
    await ledger.rebuild(MANIFESTS, RECORDS)
    assert ledger.intact()
    await ledger.put([record("new")])
    assert ledger.intact()
    await asyncio.to_thread(shutil.copytree, tmp_path / "state", tmp_path / "after-a-power-cut")
    ledger.close()
    assert not ledger.intact()
    assert known(tmp_path / "after-a-power-cut") == (MANIFESTS, [*RECORDS, record("new")])


@pytest.mark.parametrize("name", FILES)
def test_what_is_refused_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    place = _killed(tmp_path / "state", 2)
    count = (place / f"{name}-count").read_bytes()
    (place / f"{name}-count").write_bytes(b"garbage")
    with pytest.raises(LedgerUnreadable, match="the count of its commits"):
        known(place)
    assert (place / f"{name}-wal").exists()
    (place / f"{name}-count").write_bytes(count)
    known(place)


def test_a_life_that_wrote_nothing_ends_with_one_file_each_too(tmp_path: Path) -> None:
    place = _killed(tmp_path / "state", 2)
    before = known(place)
    assert sorted(path.name for path in place.iterdir()) == sorted(FILES)
    assert known(place) == before


def test_a_count_that_a_power_cut_left_empty_is_made_good_before_the_log_is(tmp_path: Path) -> None:
    place = build(tmp_path / "state")
    (place / "ledger.db-count").write_bytes(bytes(17))
    database, rows = load(place / "ledger.db", RECORDS_TABLE)
    database.begin_log()
    shutil.copytree(place, tmp_path / "after-a-power-cut")
    database.close()
    assert rows == RECORDS
    assert known(tmp_path / "after-a-power-cut") == (MANIFESTS, RECORDS)


FULL = f"""
import resource, sys
{LOOP.split("async def")[0]}
resource.setrlimit(resource.RLIMIT_FSIZE, (20480, 20480))  # stands for a full disk: an index has 32 KiB
ledger = SqliteLedger(Path(sys.argv[1]))
print(len(ledger.manifests()), len(ledger.records()))
"""


def test_a_full_disk_keeps_nobody_from_reading_what_a_killed_one_left(tmp_path: Path) -> None:
    place = _killed(tmp_path / "state", 2)
    for name in FILES:
        (place / f"{name}-shm").unlink()
    shutil.copytree(place, tmp_path / "copy")
    manifests, records = known(tmp_path / "copy")
    read = subprocess.run(
        [sys.executable, "-c", FULL, str(place)], capture_output=True, text=True, check=False
    )
    assert read.stdout.split() == [str(len(manifests)), str(len(records))], read.stderr
    assert read_only(place) == (manifests, records)
