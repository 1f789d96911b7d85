"""`harmony fleet apply` and upgrade runs, killed by SIGKILL at every step and carried on: nothing
twice or left.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.roster.file import RosterFile
from scores.jetstream import kv_subject, noting
from scores.keys import ACTUAL, DESIRED, TASK_RUNS
from tests.integration.killed import Killer
from tests.integration.operator import Operator
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

NAMES = ("pi-01", "pi-02", "pi-03")
KILLED = -9
UNIT = {
    "kind": "SystemdUnit",
    "name": "web.service",
    "content": "[Service]\nExecStart=/bin/sleep 9\n",
}
MOTD = {
    "kind": "File",
    "name": "motd",
    "path": "/srv/motd",
    "content": {"$text": "${device} ${port}\n"},
}
EXTRA = {"kind": "File", "name": "extra", "path": "/srv/extra", "content": "x\n"}
WRITES = 6
"""What the apply under test has to write: three manifests, a removal, and the purges of two
keys.
"""


class Site:
    """An operator, three devices that answer, and the killer."""

    def __init__(self, operator: Operator, fleet: SimFleet, store: Store, kill: Killer) -> None:
        self.operator, self.fleet, self.store, self.kill = operator, fleet, store, kill
        self.file = RosterFile(operator.home)
        self.kept: dict[str, tuple[bytes, str]] = {}
        self.enforced: dict[str, dict[str, tuple[str, int]]] = {}
        self.first = 0

    async def __call__(self, *words: str) -> None:
        ran = await self.operator("fleet", *words)
        assert ran.code == 0, (words, ran.err)

    async def last(self) -> int:
        """How often ``desired-state`` was written so far."""
        answer = await self.fleet.client.request(
            f"$JS.API.STREAM.INFO.KV_{DESIRED}", b"", timeout=10
        )
        return int(json.loads(answer.data)["state"]["last_seq"])

    def files(self) -> dict[str, bytes]:
        """What lies in the roster's folder, once nobody holds its lock: a kill's child may still be
        at work.
        """
        folder = os.open(self.file.folder, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            return {
                name: (self.file.folder / name).read_bytes()
                for name in sorted(os.listdir(self.file.folder))
            }
        finally:
            os.close(folder)

    async def keep(self) -> None:
        """Remember how it is, for `again`."""
        for bucket in (DESIRED, ACTUAL):
            for key, entry in (await self.store.entries(bucket)).items():
                self.kept[kv_subject(bucket, key)] = entry.value or b"", entry.note
        self.enforced = {name: dict(device.enforced) for name, device in self.fleet.devices.items()}

    async def again(self, files: dict[str, bytes]) -> None:
        """Have everything as it was."""
        for name, data in files.items():
            (self.file.folder / name).write_bytes(data)
        for name, enforced in self.enforced.items():
            self.fleet[name].plugged = False  # what is restored is no news to them
            self.fleet[name].enforced = dict(enforced)
        for bucket in (DESIRED, ACTUAL):
            await self.fleet.client.request(f"$JS.API.STREAM.PURGE.KV_{bucket}", b"", timeout=10)
        for subject, (value, note) in self.kept.items():
            await self.fleet.client.request(subject, value, timeout=10, headers=noting(note))
        for device in self.fleet.devices.values():
            device.plugged = True
        self.first = await self.last()


@pytest.fixture
async def site(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Site]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with (
            SimFleet(client, NAMES, beat=0.05) as fleet,
            Killer(operator.environment()) as kill,
        ):
            site = Site(operator, fleet, store, kill)
            await site("init")
            await site("device", "add", *NAMES, "--class", "web", "--variable", "port=1", "-g", "1")
            yield site


async def _before_the_change(site: Site) -> dict[str, bytes]:
    """A fleet with a change of each sort to come: the files with a roster that was changed by
    hand.
    """
    old: list[dict[str, Any]] = [EXTRA | {"name": "old", "path": "/srv/old"}]
    for at, (name, scores) in enumerate((("web", [MOTD, UNIT]), ("extra", [EXTRA]), ("old", old))):
        path = site.operator.folder / f"{name}.json"
        path.write_text(json.dumps(scores))
        only = ("--select", "only=one") if name != "web" else ()
        await site(
            "deployment", "add", name, "--file", str(path), "--inline", *only, "-g", str(2 + at)
        )
    await site("device", "set", "pi-01", "--label", "only=one", "-g", "5")
    await site("apply", "--wait", "--timeout", "60s")
    await site("deployment", "remove", "old", "-g", "6")
    await site("apply", "--no-wait")
    async with asyncio.timeout(60):
        while b'"phase":"Removed"' not in (
            (await site.store.get(ACTUAL, "pi-01.old")).value or b""
        ):
            await asyncio.sleep(0.02)
    await site.keep()
    before = site.files()
    text = (
        before["roster.yaml"]
        .decode()
        .replace("generation: 7", "generation: 8")
        .replace("port: 1", "port: 2")
    )
    head, _, rest = text.partition("  - name: extra\n")
    return before | {"roster.yaml": (head + rest[rest.index("schedules:") :]).encode()}


async def test_an_apply_killed_at_every_step_is_carried_on_by_the_next(site: Site) -> None:
    files = await _before_the_change(site)
    untouched = (0, files["roster.seal"])
    left: dict[tuple[int, bytes], int] = {}
    how = (-1, b"")
    for at in range(1, 2000):
        if how != untouched:
            await site.again(files)
        code, _ = await site.kill("apply", at=at)
        if code == 0:
            break
        assert code == KILLED, at
        there = site.files()
        assert list(there) == ["roster.seal", "roster.yaml"], at
        assert there["roster.yaml"] == files["roster.yaml"], at
        how = (await site.last() - site.first, there["roster.seal"])
        if how not in left:  # what a kill leaves is all that the next one knows
            await _carried_on(site, at)
        left[how] = at
    assert at > 100
    assert {wrote for wrote, _ in left} == set(range(WRITES + 1))
    assert len({seal for _, seal in left}) == 2


async def _carried_on(site: Site, at: int) -> None:
    assert (await site.kill("apply"))[0] == 0, at
    assert await site.last() - site.first == WRITES, at
    found = {
        key: json.loads(entry.value or b"")
        for key, entry in (await site.store.entries(DESIRED)).items()
    }
    assert {key: value["generation"] for key, value in found.items()} == {
        f"{name}.web": 2 for name in NAMES
    }, at
    assert {value["scores"][0]["content"] for value in found.values()} == {
        f"{name} 2\n" for name in NAMES
    }, at
    assert (await site.kill("verify"))[0] == 0, at


async def _only_run(site: Site) -> dict[str, Any] | None:
    found = [
        json.loads(entry.value or b"")
        for key, entry in (await site.store.entries(TASK_RUNS)).items()
        if not key.startswith("device.")  # which run has a device
    ]
    assert len(found) <= 1
    return found[0] if found else None


async def _killed_start(site: Site) -> str:
    """`upgrade start` killed at each step of its until one of them has begun the run; its id."""
    for at in range(1, 200):
        code, _ = await site.kill("start", at=at)
        run = await _only_run(site)
        if run is not None:
            assert code == KILLED
            return str(run["run_uid"])
    raise AssertionError("no run began")


async def test_a_run_killed_before_and_after_each_of_its_writes_asks_nobody_twice(
    site: Site,
) -> None:
    uid = await _killed_start(site)
    assert (await site.kill("start"))[0] == 5  # the one that was killed had begun it
    kills = 0
    for _ in range(400):
        at = 1 + kills % 2  # before the first write that it would do, and after it
        code, steps = await site.kill("watch", uid, at=at, what="writes")
        if code == 0:
            break
        assert (code, steps) == (KILLED, at)
        kills += 1
    run = await _only_run(site)
    assert run is not None
    assert (run["phase"], [target["state"] for target in run["targets"]]) == (
        "Succeeded",
        ["succeeded"] * 3,
    )
    assert [target["wave"] for target in run["targets"]] == [1, 2, 2]
    assert [sum(device.asked.values()) for device in site.fleet.devices.values()] == [1, 1, 1]
    assert await site.store.entries(DESIRED) == {}
    # Of each device's key: the manifest, its removal, and the end of the key; never one of them
    # twice.
    assert await site.last() == 3 * len(NAMES)
    assert kills >= 2 * await site.last()
