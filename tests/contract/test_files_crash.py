"""The agent is killed at, or the kernel fails, each call that changes something: what was there is
intact, or what is wanted is there whole; the next agent converges; nothing unfinished is left.

Real processes, real file system, faults by strace.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.core.resources import OwnershipRecord
from tests.contract.files_zygote import Agent, unpack

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(
        shutil.which("strace") is None,
        reason="cannot make the kernel fail: strace is not installed",
    ),
]

CALLS = (
    "openat,write,ftruncate,fsync,fdatasync,syncfs,fchmod,chmod,fchmodat,fchown,chown,fchownat,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,rmdir,mkdir,mkdirat,symlink,symlinkat"
)
OLD, NEW = "old\n" * 2000, "new\0" * 3000


@dataclass(frozen=True)
class Case:
    """`before` was reached by an agent (None: never one); `by_hand` puts things there then;
    `wanted` is next.
    """

    before: dict[str, Any] | None
    wanted: dict[str, Any] | None
    by_hand: dict[str, str] = field(default_factory=dict)


CASES = {
    "create": Case(None, {"path": "a", "content": NEW, "mode": "0600"}),
    "parents": Case(None, {"path": "x/y/a", "content": NEW, "parents": True}),
    "replace": Case({"path": "a", "content": OLD}, {"path": "a", "content": NEW, "mode": "0640"}),
    "amend": Case({"path": "a", "content": OLD}, {"path": "a", "content": OLD, "mode": "0600"}),
    "to directory": Case({"path": "a", "content": OLD}, {"path": "a", "type": "directory"}),
    "to file": Case({"path": "a", "type": "directory"}, {"path": "a", "content": NEW}),
    "to link": Case({"path": "a", "content": OLD}, {"path": "a", "type": "symlink", "target": "t"}),
    "move": Case({"path": "x/a", "content": OLD, "parents": True}, {"path": "b", "content": NEW}),
    "adopt": Case(None, {"path": "a", "content": NEW, "adopt": True}, {"a": OLD}),
    "remove": Case({"path": "x/a", "content": OLD, "parents": True}, None),
    "give back": Case({"path": "a", "content": NEW, "adopt": True}, None, {"a": OLD}),
}


class Zygote:
    """The program that forks agents, and strace on one of them at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contract.files_zygote"],
            stdin=subprocess.PIPE,
            stdout=theirs.fileno(),
            text=True,
        )
        theirs.close()
        self._answers = ours.makefile()
        self._socket = ours

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._answers.close()
        self._socket.close()

    def run(
        self, directory: Path, record: OwnershipRecord | None, case: Case, fault: str = ""
    ) -> Run:
        """One agent's pass, with `fault` as strace's inject takes it."""
        run = self.run_all(directory, [record] if record else [], case.wanted, fault, many=False)
        if not run.told:
            run.record = record
        return run

    def run_all(
        self,
        directory: Path,
        records: Sequence[OwnershipRecord],
        wanted: dict[str, Any] | None,
        fault: str = "",
        *,
        many: bool = True,
        together: bool = True,
    ) -> Run:
        """The passes of one agent over a set of Files side by side, or over one."""
        assert self._process.stdin is not None
        packed = base64.b64encode(pickle.dumps(records)).decode()
        scenario = {
            "directory": str(directory),
            "wanted": wanted,
            "records": packed,
            "many": many,
            "together": together,
        }
        self._process.stdin.write(json.dumps(scenario) + "\n")
        self._process.stdin.flush()
        pid = int(self._answer("pid")[-1][1])
        log = directory / "strace"
        inject = ["-e", f"inject={fault}"] if fault else []
        strace = subprocess.Popen(
            ["strace", "-f", "-o", str(log), "-e", f"trace={CALLS}", *inject, "-p", str(pid)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert strace.stderr is not None
        assert "attached" in strace.stderr.readline()
        os.kill(pid, signal.SIGUSR1)
        told = self._answer("status")
        strace.communicate(timeout=10)
        heard = [unpack(value) for what, value in told if what == "record"]
        ended = [value for what, value in told if what == "ended"]
        killed = os.WIFSIGNALED(told[-1][1])
        return Run(heard, ended[0] if ended else None, killed, log.read_text())

    def _answer(self, until: str) -> list[Any]:
        found: list[Any] = []
        while not found or found[-1][0] != until:
            found.append(json.loads(self._answers.readline()))
        return found


@dataclass
class Run:
    """The records that were told of, in order, how the pass ended (None: it didn't), and the trace.

    `record` is that of the one File at the end.
    """

    told: list[OwnershipRecord | None]
    ended: Any
    killed: bool
    log: str
    record: OwnershipRecord | None = None

    def __post_init__(self) -> None:
        self.record = self.told[-1] if self.told else None

    def records(self, before: Sequence[OwnershipRecord]) -> list[OwnershipRecord]:
        """The ledger of a set as it was left."""
        found = {record.name: record for record in [*before, *self.told] if record is not None}
        return list(found.values())

    def points(self) -> list[tuple[str, int]]:
        """Each call that may change something, with its number among those of its thread."""
        found: list[tuple[str, int]] = []
        counts: Counter[tuple[str, str]] = Counter()
        for line in self.log.splitlines():
            match = re.match(r"(\d+) +(\w+)\(", line)
            if match is None:
                continue
            counts[match[1], match[2]] += 1
            if match[2] != "openat" or "O_CREAT" in line:
                found.append((match[2], counts[match[1], match[2]]))
        return list(dict.fromkeys(found))


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote()
    yield made
    made.close()


async def prepare(directory: Path, case: Case) -> OwnershipRecord | None:
    """The device as it is before, and the ledger."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "root").mkdir(parents=True)
    (directory / "state").mkdir()
    for name, content in case.by_hand.items():
        (directory / "root" / name).write_text(content)
    agent = Agent(str(directory))
    if case.before is not None:
        assert await agent.reach(case.before) == ""
    return agent.store.record("a")


def tree(directory: Path) -> dict[str, object]:
    """All below the root: content, target, or None for a directory; with modes."""
    root = directory / "root"
    return {
        str(path.relative_to(root)): (
            os.readlink(path)
            if path.is_symlink()
            else path.read_text()
            if path.is_file()
            else None,
            path.lstat().st_mode,
        )
        for path in root.rglob("*")
    }


def is_whole(directory: Path, before: dict[str, object], after: dict[str, object]) -> bool:
    """Each path that has a name of its own is as before, or as after, or was never there or
    goes.
    """
    for path, found in tree(directory).items():
        if "/.harmony-" not in f"/{path}" and found not in (before.get(path), after.get(path)):
            return False
    return True


async def settle(directory: Path, record: OwnershipRecord | None, case: Case) -> None:
    """The next agent."""
    agent = Agent(str(directory))
    if record is not None:
        agent.store.put(record)
    assert await agent.reach(case.wanted) == ""
    if case.wanted is None:
        assert agent.store.record("a") is None


@pytest.mark.parametrize("name", CASES)
async def test_killed_at_each_call(zygote: Zygote, tmp_path: Path, name: str) -> None:
    case, directory = CASES[name], tmp_path / "device"
    record = await prepare(directory, case)
    before = tree(directory)
    run = zygote.run(directory, record, case)
    assert (run.ended, run.killed) == ("", False)
    after = tree(directory)
    points = run.points()
    assert len(points) >= 2
    for call, number in points:
        record = await prepare(directory, case)
        run = zygote.run(directory, record, case, f"{call}:signal=KILL:when={number}")
        assert run.killed, (call, number, run.log)
        assert is_whole(directory, before, after), (call, number)
        await settle(directory, run.record, case)
        assert tree(directory) == after, (call, number)
        assert list((directory / "state").rglob("*~")) == []


FAULTS = {
    "ENOSPC": "NoSpace",
    "EDQUOT": "NoSpace",
    "EROFS": "ReadOnlyFileSystem",
    "EIO": "IoError",
    "EACCES": "PermissionDenied",
}


@pytest.mark.parametrize("name", CASES)
async def test_the_kernel_fails_at_each_call(zygote: Zygote, tmp_path: Path, name: str) -> None:
    case, directory = CASES[name], tmp_path / "device"
    record = await prepare(directory, case)
    before = tree(directory)
    run = zygote.run(directory, record, case)
    after = tree(directory)
    errors = list(FAULTS)
    for index, (call, number) in enumerate(run.points()):
        error = errors[index % len(errors)]
        record = await prepare(directory, case)
        run = zygote.run(directory, record, case, f"{call}:error={error}:when={number}")
        assert "(INJECTED)" in run.log
        assert run.ended in ("", FAULTS[error]), (call, number, error, run.ended, run.log)
        assert is_whole(directory, before, after), (call, number, error)
        if call not in ("unlinkat", "rmdir", "unlink"):
            assert not [path for path in tree(directory) if ".harmony-" in path], (
                call,
                number,
                error,
            )
        await settle(directory, run.record, case)
        assert tree(directory) == after, (call, number, error)


@pytest.mark.parametrize("again", ["at once", "another file"])
async def test_killed_while_giving_back_then_adopted_again(
    zygote: Zygote, tmp_path: Path, again: str
) -> None:
    """A copy of what was given back is never taken for one of what is adopted now, and none is left
    over.
    """
    case, directory = CASES["give back"], tmp_path / "device"
    file, former = directory / "root" / "a", directory / "state" / "former"
    points = zygote.run(directory, await prepare(directory, case), case).points()
    for call, number in points:
        run = zygote.run(
            directory, await prepare(directory, case), case, f"{call}:signal=KILL:when={number}"
        )
        assert run.killed, (call, number, run.log)
        record, theirs = run.record, OLD
        if again == "another file":
            await settle(directory, record, case)
            record, theirs = None, "another\n"
            file.write_text(theirs)
        await settle(directory, await adopted(directory, record, case), case)
        assert file.read_text() == theirs, (call, number)
        assert list(former.iterdir()) == [], (call, number)


async def adopted(
    directory: Path, record: OwnershipRecord | None, case: Case
) -> OwnershipRecord | None:
    """The ledger once the next agent has `before` again."""
    agent = Agent(str(directory))
    if record is not None:
        agent.store.put(record)
    assert await agent.reach(case.before) == ""
    return agent.store.record("a")


SET = 6
"""More Files than are synced one by one, in two folders."""


def many(content: str) -> dict[str, Any]:
    """What a set of Files is to be, by name."""
    files: dict[str, Any] = {
        f"f{at}": {"path": f"{'ab'[at % 2]}/f{at}", "content": f"{at} {content}", "parents": True}
        for at in range(SET)
    }
    files["link"] = {"path": "a/link", "type": "symlink", "target": content[:3]}
    files["folder"] = {"path": "b/folder", "type": "directory", "mode": "0750"}
    return files


async def prepare_many(directory: Path, content: str | None) -> list[OwnershipRecord]:
    """The device with the set, or without it but for its folders, and the ledger."""
    shutil.rmtree(directory, ignore_errors=True)
    for folder in ("root/a", "root/b", "state"):
        (directory / folder).mkdir(parents=True)
    if content is None:
        return []
    agent = Agent(str(directory))
    assert await agent.reach_all(many(content)) == {}
    return [record for name in many(content) if (record := agent.store.record(name))]


async def settle_many(directory: Path, records: Sequence[OwnershipRecord]) -> None:
    """The next agent."""
    agent = Agent(str(directory))
    for record in records:
        agent.store.put(record)
    assert await agent.reach_all(many(NEW)) == {}


@pytest.mark.parametrize("old", [None, OLD], ids=["new", "replaced"])
async def test_a_set_is_killed_at_each_call(
    zygote: Zygote, tmp_path: Path, old: str | None
) -> None:
    directory = tmp_path / "device"
    records = await prepare_many(directory, old)
    before = tree(directory)
    run = zygote.run_all(directory, records, many(NEW))
    assert (run.ended, run.killed) == ({}, False)
    after = tree(directory)
    assert "syncfs(" in run.log
    points = run.points()
    assert len(points) > 2 * SET
    for call, number in points:
        records = await prepare_many(directory, old)
        run = zygote.run_all(directory, records, many(NEW), f"{call}:signal=KILL:when={number}")
        assert run.killed, (call, number, run.log)
        assert is_whole(directory, before, after), (call, number)
        await settle_many(directory, run.records(records))
        assert tree(directory) == after, (call, number)


async def test_a_set_that_is_synced_side_by_side_is_killed_at_each_call(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Where no call for all is taken: each is synced before the first of them gets its name."""
    directory = tmp_path / "device"
    run = zygote.run_all(directory, await prepare_many(directory, None), many(NEW), together=False)
    after = tree(directory)
    calls = [match[1] for match in re.finditer(r"^\d+ +(\w+)\(", run.log, re.MULTILINE)]
    assert "syncfs" not in calls
    assert calls[: calls.index("renameat2")].count("fsync") >= SET + 1
    for call, number in run.points():
        await prepare_many(directory, None)
        fault = f"{call}:signal=KILL:when={number}"
        run = zygote.run_all(directory, [], many(NEW), fault, together=False)
        # How many syncs each thread takes is another number each time.
        assert run.killed or call == "fsync", (call, number, run.log)
        assert is_whole(directory, {}, after), (call, number)
        await settle_many(directory, run.records([]))
        assert tree(directory) == after, (call, number)


@pytest.mark.parametrize("number", [1, 2])
async def test_a_sync_that_fails_side_by_side_fails_for_that_one_alone(
    zygote: Zygote, tmp_path: Path, number: int
) -> None:
    """The kernel tells of the error once: a second sync of the same File would say that all is well."""
    directory = tmp_path / "device"
    await prepare_many(directory, None)
    fault = f"fsync:error=ENOSPC:when={number}"
    run = zygote.run_all(directory, [], many(NEW), fault, together=False)
    assert "(INJECTED)" in run.log
    assert set(run.ended.values()) == {"NoSpace"}
    root = directory / "root"
    there = {name for name, node in many(NEW).items() if os.path.lexists(root / node["path"])}
    assert many(NEW).keys() - there <= run.ended.keys()
    await settle_many(directory, run.records([]))


async def test_what_fails_for_one_of_a_set_fails_for_that_one_alone(
    zygote: Zygote, tmp_path: Path
) -> None:
    directory = tmp_path / "device"
    records = await prepare_many(directory, None)
    points = zygote.run_all(directory, records, many(NEW)).points()
    after = tree(directory)
    for call, number in points:
        records = await prepare_many(directory, None)
        run = zygote.run_all(directory, records, many(NEW), f"{call}:error=ENOSPC:when={number}")
        assert "(INJECTED)" in run.log
        assert set(run.ended.values()) <= {"NoSpace"}, (call, number, run.ended)
        whole = call in ("fsync", "fdatasync")  # of a folder: all in it aren't durable
        assert len(run.ended) <= (SET + 2 if whole else 1), (call, number, run.ended)
        assert is_whole(directory, {}, after), (call, number)
        await settle_many(directory, run.records(records))
        assert tree(directory) == after, (call, number)


async def test_no_name_of_a_set_leads_to_content_that_is_not_on_the_disk(
    zygote: Zygote, tmp_path: Path
) -> None:
    """One sync of the file system lies between the last write and the first rename, and each folder
    is synced after its last rename.
    """
    directory = tmp_path / "device"
    run = zygote.run_all(directory, await prepare_many(directory, None), many(NEW))
    calls = [match[1] for match in re.finditer(r"^\d+ +(\w+)\(", run.log, re.MULTILINE)]
    synced = calls.index("syncfs")
    renames = [at for at, call in enumerate(calls) if call == "renameat2"]
    writes = [at for at, call in enumerate(calls) if call == "write"]
    assert len(renames) == SET + 2
    assert synced < renames[0]
    assert max(at for at in writes if at < renames[0]) < synced
    assert calls[renames[-1] :].count("fsync") == 2
    assert calls[: renames[0]].count("fsync") <= 2  # the folders, at the first look
