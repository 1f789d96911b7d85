"""A real agent, killed with SIGKILL at a hundred random moments while generations change: nothing
twice, nothing left.

What it does to the files is watched from outside: a file that is written again with the content
that it had already shows as another inode with the same content.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scores.keys import DESIRED
from tests.integration import agent_zygote
from tests.integration.agent import DEVICE, LINEAGE, Plane, converged
from tests.natsserver import NatsServer

KILLS = 100
LONGEST = 0.4
"""seconds that an agent may live; starting takes about a tenth of it, so that this, too, is cut"""
CONFIG = """
[agent]
device_id = "{device}"
state_dir = "{state}"
kinds = ["File"]
[nats]
servers = ["{url}"]
[files]
roots = ["{root}"]
[intervals]
heartbeat = 5
relist = 0.2
poll = 0.5
"""


def scores(root: Path, generation: int) -> list[dict[str, Any]]:
    """What a generation wants: some that never change, some that do, one that comes and goes, one
    with a need.
    """
    same = [
        {
            "kind": "File",
            "name": f"same{number}",
            "path": f"{root}/same{number}",
            "content": "same",
            "mode": "0640",
        }
        for number in range(4)
    ]
    changing = [
        {
            "kind": "File",
            "name": f"new{number}",
            "path": f"{root}/new{number}",
            "content": f"{generation}",
        }
        for number in range(4)
    ]
    inner = {
        "kind": "File",
        "name": "inner",
        "path": f"{root}/d/inner",
        "content": f"{generation}",
        "after": ["File/d"],
    }
    tree = [{"kind": "File", "name": "d", "type": "directory", "path": f"{root}/d"}, inner]
    link = {
        "kind": "File",
        "name": "link",
        "type": "symlink",
        "path": f"{root}/link",
        "target": f"new{generation % 4}",
    }
    odd = (
        [{"kind": "File", "name": "odd", "path": f"{root}/odd", "content": "odd"}]
        if generation % 2
        else []
    )
    return [*same, *changing, *tree, link, *odd]


@dataclass
class Watcher:
    """Looks at a directory all the time; `twice` are the files that were made again with the
    content they had.
    """

    root: Path
    files: dict[str, tuple[tuple[int, int], bytes]] = field(default_factory=dict)
    twice: list[str] = field(default_factory=list)
    seen: int = 0
    _end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._end.is_set():
            for folder in (self.root, self.root / "d"):
                self._look(folder)
            time.sleep(0.002)

    def _look(self, folder: Path) -> None:
        found = {}
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            return
        for entry in entries:
            try:
                if entry.name.startswith(".") or entry.is_symlink() or not entry.is_file():
                    continue  # what is not yet renamed into its place may be made again
                with open(entry.path, "rb") as file:
                    stat = os.fstat(file.fileno())
                    found[entry.path] = ((stat.st_ino, stat.st_mtime_ns), file.read())
            except FileNotFoundError:
                continue
        for path, (identity, content) in found.items():
            old = self.files.get(path)
            if (
                old is not None
                and old[0] != identity
                and old[1] == content
                and not path.endswith("/odd")
            ):
                self.twice.append(path)
            self.seen += old != (identity, content)
            self.files[path] = (identity, content)

    def end(self) -> None:
        self._end.set()


class Agents:
    """The forked agents, one at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = 0

    async def _word(self) -> list[str]:
        assert self._process.stdout is not None
        return (await asyncio.wait_for(self._process.stdout.readline(), 30)).decode().split()

    async def start(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        said, pid = await self._word()
        assert said == "started"
        self.pid = int(pid)

    async def end(self, how: signal.Signals) -> int:
        os.kill(self.pid, how)
        said, code = await self._word()
        assert said == "ended"
        return int(code)


@asynccontextmanager
async def zygote(config: Path, log: Path) -> AsyncIterator[Agents]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        agent_zygote.__name__,
        str(config),
        str(log),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Agents(process)
    finally:
        process.kill()  # and with it, by the kernel, its agent
        await process.wait()


async def publish(plane: Plane, root: Path, chance: random.Random, latest: list[int]) -> None:
    """One generation after another, until cancelled."""
    while True:
        generation = latest[0] + 1
        value = {"api": "harmony/v1", "device": DEVICE, "deployment": "web", "lineage": LINEAGE}
        await plane.put({**value, "generation": generation, "scores": scores(root, generation)})
        latest[0] = generation
        await asyncio.sleep(chance.uniform(0.02, 0.4))


@pytest.mark.timeout(300)
async def test_killed_at_random_moments(nats_server: NatsServer, tmp_path: Path) -> None:
    seed = int(os.environ.get("HARMONY_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HARMONY_SEED={seed}")
    chance = random.Random(seed)
    root, state, config, log = (tmp_path / name for name in ("root", "state", "agent.toml", "log"))
    root.mkdir()
    config.write_text(CONFIG.format(device=DEVICE, state=state, url=nats_server.url, root=root))
    watcher = Watcher(root)
    looking = threading.Thread(target=watcher.run)
    looking.start()
    latest = [0]
    try:
        async with nats_server.client() as client, zygote(config, log) as agents:
            plane = Plane(client)
            await plane.make_buckets()
            publishing = asyncio.create_task(publish(plane, root, chance, latest))
            for _ in range(KILLS):
                await agents.start()
                await asyncio.sleep(chance.uniform(0.0, LONGEST))
                assert await agents.end(signal.SIGKILL) == -signal.SIGKILL
            publishing.cancel()
            await agents.start()
            newest = (await plane.js.stream_info(f"KV_{DESIRED}")).state.last_seq
            status = await plane.until(
                converged(newest), seconds=90
            )  # one that was killed may have said so already
            for _ in range(10):
                before = status
                await asyncio.sleep(1.0)  # some relists: it stays so
                status = await plane.until(converged(newest), seconds=90)
                if status == before:
                    break
            assert status == before
            began = time.monotonic()
            assert await agents.end(signal.SIGTERM) == 0
            assert time.monotonic() - began < 30
    finally:
        watcher.end()
        looking.join()
    assert newest >= latest[0] > 10
    assert watcher.seen > 10
    assert watcher.twice == []
    is_exactly(root, scores(root, newest))
    owns_exactly(state, {score["name"] for score in scores(root, newest)})
    assert sorted(path.name for path in state.iterdir() if path.suffix in (".new", ".tmp")) == []
    text = log.read_text()
    assert "defect" not in text
    assert "Traceback" not in text


def is_exactly(root: Path, wanted: list[dict[str, Any]]) -> None:
    """Each file as wanted, and nothing beside them."""
    found = {str(path) for path in root.rglob("*")}
    assert found == {score["path"] for score in wanted}
    for score in wanted:
        path = Path(score["path"])
        if score.get("type") == "symlink":
            assert os.readlink(path) == score["target"]
        elif "content" in score:
            assert path.read_text() == score["content"]


def owns_exactly(state: Path, names: set[str]) -> None:
    with closing(sqlite3.connect(state / "ledger.db")) as database:
        assert {name for (name,) in database.execute("SELECT name FROM records")} == names
