"""`harmony fleet controller`: keeps the roster, carries runs on, begins scheduled ones, once though
two of it run.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.controller import Controller
from harmony_fleet.rollout.runs.sightings import first_seen
from harmony_fleet.rollout.runs.store import all_runs
from harmony_fleet.roster.edit import Edit, add, change, remove
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.sources import load_scores, scores_digest
from scores.canonical import canonical
from scores.keys import ACTUAL, DESIRED, TASK_RUNS
from scores.names import format_time
from tests.integration.operator import Operator
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

NAMES = ("pi-01", "pi-02")
FILE = {"kind": "File", "name": "motd", "path": "/srv/motd", "content": "hi\n"}


class Site:
    """A controller whose steps the test takes, and what it said."""

    def __init__(self, store: Store, file: RosterFile, fleet: SimFleet) -> None:
        self.store, self.file, self.fleet = store, file, fleet
        self.said: list[str] = []
        self.controller = Controller(store, file, self.said.append)

    def edit(self, edit: Edit) -> None:
        self.file.mutate(self.file.read().generation, edit)

    async def was_there(self, since: datetime) -> None:
        """Have the controller's schedules known since then."""
        await first_seen(self.store, self.file.read().schedules)
        for key, entry in (await self.store.entries(TASK_RUNS, ["schedule.*"])).items():
            value = json.loads(entry.value or b"") | {"since": format_time(since)}
            await self.store.put(TASK_RUNS, key, canonical(value), entry.revision)

    async def settle(self) -> None:
        """Two rounds: what the first removes, the second purges."""
        for _ in range(2):
            await self.controller.reconcile()
            await asyncio.sleep(0.2)


def before_now(minutes: int = 2) -> str:
    """Times of which the last was two minutes ago."""
    return f"{(datetime.now(UTC) - timedelta(minutes=minutes)).minute} * * * *"


@pytest.fixture
async def site(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Site]:
    file = RosterFile(tmp_path)
    file.create(str(uuid.uuid4()))
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, NAMES, beat=0.2) as fleet:
            made = Site(store, file, fleet)
            made.edit(add("devices", [{"name": name, "class": "web"} for name in NAMES]))
            made.edit(add("deployments", [{"name": "web", "scores": [FILE]}]))
            yield made


async def test_it_follows_the_roster(site: Site) -> None:
    await site.settle()
    assert sorted(await site.store.entries(DESIRED)) == ["pi-01.web", "pi-02.web"]
    site.edit(remove("devices", ["pi-02"]))
    await site.settle()
    assert sorted(await site.store.entries(DESIRED)) == ["pi-01.web"]
    entry = (await site.store.entries(DESIRED))["pi-01.web"]
    await site.store.put(
        DESIRED, "pi-01.web", (entry.value or b"").replace(b"hi", b"no"), entry.revision
    )
    await site.settle()
    assert (
        json.loads((await site.store.get(DESIRED, "pi-01.web")).value or b"")["scores"][0][
            "content"
        ]
        == "hi\n"
    )
    said = len(site.said)
    await site.settle()
    assert len(site.said) == said


async def test_a_file_that_changed_is_told_once_and_the_others_go_on(
    site: Site, tmp_path: Path
) -> None:
    path = tmp_path / "other.json"
    path.write_text(json.dumps([{**FILE, "name": "other", "path": "/srv/other"}]))
    known = {"file": str(path), "digest": scores_digest(load_scores(path))}
    site.edit(add("deployments", [{"name": "other", **known}]))
    await site.settle()
    path.write_text("[]")
    site.edit(change("deployments", ["web"], {("scores",): [{**FILE, "content": "new"}]}))
    said = len(site.said)
    for _ in range(3):
        await site.settle()
    there = await site.store.entries(DESIRED)
    assert sorted(there) == [f"{name}.{what}" for name in NAMES for what in ("other", "web")]
    assert b'"content":"new"' in (there["pi-01.web"].value or b"")
    assert sum("FileChanged" in words for words in site.said[said:]) == 1


async def test_what_is_due_begins_once_and_is_carried_on(
    site: Site, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = datetime.now(UTC)
    schedule = {
        "name": "nightly",
        "cron": f"{now.minute} {now.hour} * * *",
        "deadline": "5m",
        "max_unavailable": 1,
    }
    site.edit(add("schedules", [schedule, {**schedule, "name": "never", "enabled": False}]))
    await site.was_there(datetime.now(UTC) - timedelta(days=1))
    other = Controller(site.store, site.file, site.said.append)
    for _ in range(40):
        await asyncio.gather(site.controller.runs(), other.runs())
        runs = await all_runs(site.store)
        if runs[0].phase != "Running":
            break
        await asyncio.sleep(0.2)
    await site.settle()
    assert [(run.phase, run.schedule) for run in runs] == [("Succeeded", "nightly")]
    assert [sum(device.asked.values()) for device in site.fleet.devices.values()] == [1, 1]
    assert await site.store.entries(DESIRED, ["*." + runs[0].deployment]) == {}
    await site.controller.runs()
    assert len(await all_runs(site.store)) == 1


async def test_a_time_before_the_schedule_was_made_is_never_made_up_for(site: Site) -> None:
    """Made, enabled, or given other times: none of them begins what had gone by, also not by a
    second controller or after a restart. A change of another field leaves the time as it is.
    """
    nightly = {"name": "nightly", "cron": before_now(), "deadline": "5m", "max_unavailable": 1}
    site.edit(add("schedules", [nightly]))
    await site.controller.runs()
    for values in (
        {("enabled",): False},
        {("enabled",): True},
        {("cron",): before_now(3)},
    ):
        site.edit(change("schedules", ["nightly"], values))
        await site.controller.runs()
        await Controller(site.store, site.file, site.said.append).runs()
    assert (await all_runs(site.store), site.said) == ([], [])
    before = await site.store.get(TASK_RUNS, "schedule.nightly")
    site.edit(change("schedules", ["nightly"], {("max_unavailable",): 2}))
    await site.controller.runs()
    assert await site.store.get(TASK_RUNS, "schedule.nightly") == before
    site.edit(remove("schedules", ["nightly"]))
    await site.controller.runs()
    assert await site.store.entries(TASK_RUNS, ["schedule.*"]) == {}
    site.edit(add("schedules", [nightly]))
    await site.controller.runs()
    assert await all_runs(site.store) == []
    await site.was_there(datetime.now(UTC) - timedelta(days=1))
    await Controller(site.store, site.file, site.said.append).runs()
    assert len(await all_runs(site.store)) == 1


async def test_a_schedule_that_can_not_be_is_said_once(site: Site) -> None:
    site.fleet["pi-02"].updater = False
    await site.fleet.tell()
    site.edit(
        add(
            "schedules",
            [{"name": "n", "cron": "* * * * *", "deadline": "5m", "max_unavailable": 1}],
        )
    )
    await site.was_there(datetime.now(UTC) - timedelta(days=1))
    for _ in range(3):
        await site.controller.runs()
    assert await all_runs(site.store) == []
    assert [words.split(":")[1] for words in site.said] == [" MissingCapability"]


async def test_an_attempt_of_a_device_that_was_away_is_taken_off_when_it_is_back(
    site: Site,
) -> None:
    site.edit(change("devices", ["pi-02"], {("enabled",): False}))
    site.fleet["pi-01"].upgrade = "vanish"
    from harmony_fleet.observe.state import list_devices
    from harmony_fleet.rollout.runs.plan import Request, freeze
    from harmony_fleet.rollout.runs.store import create

    device = [item for item in await list_devices(site.store) if item.name == "pi-01"]
    request = Request("0f" * 4 + "-run", site.file.read().lineage, timedelta(seconds=2), 1)
    run = freeze(request, device, [], await site.store.now())
    await create(site.store, run)
    for _ in range(30):
        await site.controller.runs()
        await asyncio.sleep(0.1)
    assert [run.phase for run in await all_runs(site.store)] == ["Failed"]
    key = f"pi-01.{run.deployment}"
    assert b'"removed":true' in ((await site.store.get(DESIRED, key)).value or b"")
    site.fleet["pi-01"].plugged = True
    from scores.manifest import decode

    wire = decode(
        (await site.store.get(DESIRED, key)).value or b"", device="pi-01", deployment=run.deployment
    )
    await site.fleet.say(wire)
    await site.settle()
    assert (await site.store.get(DESIRED, key)).value is None
    assert (await site.store.get(ACTUAL, key)).value is not None


async def test_the_command_runs_until_ended_through_a_restart(
    site: Site, nats_server: NatsServer, tmp_path: Path
) -> None:
    operator = Operator(nats_server, tmp_path)
    process = await operator.process("fleet", "controller", "--interval", "200ms")
    try:
        async with asyncio.timeout(20):
            while len(await site.store.entries(DESIRED)) < 2:
                await asyncio.sleep(0.1)
        site.edit(remove("devices", ["pi-02"]))
        async with asyncio.timeout(20):
            while len(await site.store.entries(DESIRED)) > 1:
                await asyncio.sleep(0.1)
    finally:
        os.kill(process.pid, signal.SIGTERM)
        out, err = await process.communicate()
    assert (process.returncode, out) == (0, b""), err
    assert b"purged" in err
    assert (await operator("fleet", "controller", "--interval", "0s")).code == 2
