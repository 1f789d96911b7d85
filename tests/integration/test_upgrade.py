"""`harmony upgrade` against a real server and devices that upgrade by themselves: waves, ends,
kills, exit codes.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.errors import Refused
from harmony_fleet.manifests.signing import UNSIGNED
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device, list_devices, read_deployment
from harmony_fleet.rollout.runs.advance import give_up
from harmony_fleet.rollout.runs.claims import begun
from harmony_fleet.rollout.runs.follow import step
from harmony_fleet.rollout.runs.plan import Request, freeze
from harmony_fleet.rollout.runs.store import all_runs, cancel_run, create, load, update
from scores.jetstream import kv_subject
from scores.keys import DESIRED, DeploymentKey
from tests.integration.operator import Operator, Ran
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer
from tests.scale import scaled

NAMES = tuple(f"pi-0{number}" for number in range(1, 6))
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"
BOUNDS = ("--deadline", "30s", "--max-unavailable", "2")


class Site:
    """An operator with a roster of five devices that answer."""

    def __init__(self, operator: Operator, fleet: SimFleet, store: Store) -> None:
        self.operator, self.fleet, self.store = operator, fleet, store

    async def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = await self.operator("upgrade", *words)
        assert ran.code == code, (words, ran.out, ran.err)
        return ran

    async def run(self, *words: str, code: int = 0) -> dict[str, Any]:
        """A run carried to its end; its last state."""
        ended: dict[str, Any] = (
            await self("start", "--all", *BOUNDS, *words, "-o", "json", code=code)
        ).json
        return ended

    async def only(self) -> dict[str, Any]:
        """The one run there is."""
        found: list[dict[str, Any]] = (await self("list", "-o", "json")).json
        assert len(found) == 1
        return found[0]

    async def left(self) -> dict[str, bool]:
        """What is desired of runs still: by key, whether it is a removal."""
        found = await self.store.entries(DESIRED)
        return {
            key: b'"removed":true' in (entry.value or b"")
            for key, entry in found.items()
            if "upgrade-" in key
        }

    def attempts(self) -> list[int]:
        """How many attempts each device was asked for."""
        return [sum(device.asked.values()) for device in self.fleet.devices.values()]


def states(run: dict[str, Any]) -> list[str]:
    return [target["state"] for target in run["targets"]]


@pytest.fixture
async def site(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Site]:
    monkeypatch.setattr("harmony_fleet.rollout.runs.follow.LOOK_SECONDS", 0.1)
    monkeypatch.setattr("harmony_fleet.rollout.runs.follow.TIDY_SECONDS", 2.0)
    operator = Operator(nats_server, tmp_path / "operator")
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, NAMES, beat=0.2) as fleet:
            assert (await operator("fleet", "init")).code == 0
            assert (
                await operator("fleet", "device", "add", *NAMES, "--class", "web", "-g", "1")
            ).code == 0
            yield Site(operator, fleet, store)


async def test_all_succeed_in_waves(site: Site) -> None:
    run = await site.run("--canary", "1")
    assert (run["phase"], states(run)) == ("Succeeded", ["succeeded"] * 5)
    assert [target["wave"] for target in run["targets"]] == [1, 2, 2, 3, 3]
    assert site.attempts() == [1] * 5
    for target in run["targets"]:
        assert (
            target["boot_id_before"] != target["boot_id_after"] == site.fleet[target["device"]].boot
        )
        assert (target["completed_at"] < run["deadline"], target["upgraded"]) == (True, 1)
    assert await site.left() == {}
    assert (await site("show", run["run_uid"][:8])).out.count("succeeded") == 5
    assert (await site.operator("fleet", "verify")).code == 0


async def test_never_more_are_unavailable_than_allowed(site: Site) -> None:
    worst = 0

    async def look() -> None:
        nonlocal worst
        while True:
            worst = max(worst, sum(not device.plugged for device in site.fleet.devices.values()))
            await asyncio.sleep(0.01)

    looking = asyncio.create_task(look())
    run = await site.run()
    looking.cancel()
    assert (run["phase"], worst) == ("Succeeded", 2)


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("failed", "failed", ""),
        ("repair-required", "repair-required", ""),
        ("same-boot", "failed", "BootIdUnchanged"),
    ],
)
async def test_a_failed_wave_stops_the_next(site: Site, how: str, state: str, reason: str) -> None:
    site.fleet["pi-02"].upgrade = how
    run = await site.run(code=1)
    assert (run["phase"], states(run)) == (
        "Failed",
        ["succeeded", state, "skipped", "skipped", "skipped"],
    )
    assert run["targets"][1]["reason"] == reason
    assert site.attempts() == [1, 1, 0, 0, 0]
    assert await site.left() == {}
    assert (await site("show", run["run_uid"], code=1)).out.count("EarlierWaveFailed") == 3


async def test_one_that_never_returns_fails_the_run_at_its_deadline(site: Site) -> None:
    site.fleet["pi-05"].upgrade = "vanish"
    run = await site.run("--deadline", "10s", code=1)
    assert (run["phase"], run["reason"], states(run)) == (
        "Failed",
        "DeadlineExceeded",
        ["succeeded"] * 4 + ["failed"],
    )
    assert list((await site.left()).values()) == [True]


async def test_one_without_a_heartbeat_after_complete_has_not_succeeded(site: Site) -> None:
    device = site.fleet["pi-01"]
    original = site.fleet.pulse

    async def pulse(other: Any) -> None:
        if other is not device or not device.asked:
            await original(other)

    site.fleet.pulse = pulse  # type: ignore[method-assign]
    run = await site.run("-d", "pi-01", "--deadline", "8s", code=1)
    assert (run["targets"][0]["state"], run["targets"][0]["phase"]) == ("failed", "complete")
    assert run["targets"][0]["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize(
    ("words", "code", "reason"),
    [
        (("--all", "--deadline", "1h", "--max-unavailable", "0"), 5, "BudgetNeverMet"),
        (
            ("--all", "--deadline", "1h", "--max-unavailable", "2", "--canary", "3"),
            5,
            "BudgetNeverMet",
        ),
        (("--select", "site=x", "--deadline", "1h", "--max-unavailable", "2"), 2, "NoDevice"),
        (("--deadline", "1h", "--max-unavailable", "2"), 2, "NoDevice"),
        (("-d", "pi-99", "--deadline", "1h", "--max-unavailable", "2"), 2, "NotFound"),
        (("--all", "--deadline", "soon", "--max-unavailable", "2"), 2, "Usage"),
        (("--all", "--deadline", "8d", "--max-unavailable", "2"), 2, "Usage"),
        (("--all", "--max-unavailable", "2"), 2, "Usage"),
    ],
)
async def test_what_can_not_be_planned_is_refused(
    site: Site, words: tuple[str, ...], code: int, reason: str
) -> None:
    assert (await site("start", *words, "-o", "json", code=code)).error["code"] == reason
    assert (await site("list", "-o", "json")).json == []


async def test_a_device_without_the_capability_fails_the_planning(site: Site) -> None:
    site.fleet["pi-03"].updater = False
    await site.fleet.tell()
    ran = await site("start", "--all", *BOUNDS, "-o", "json", code=5)
    assert (ran.error["code"], "pi-03" in ran.error["message"]) == ("MissingCapability", True)
    assert site.attempts() == [0] * 5


async def test_silent_ones_count_as_unavailable_and_come_last(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import timedelta

    monkeypatch.setattr("harmony_fleet.observe.state.STALE_AFTER", timedelta(seconds=4))
    site.fleet["pi-01"].plugged = False
    await asyncio.sleep(4.3)
    shown = (await site("start", "--all", *BOUNDS, "--dry-run", "-o", "json")).json
    assert [(target["device"], target["wave"]) for target in shown["targets"]] == [
        ("pi-02", 1), ("pi-03", 2), ("pi-04", 3), ("pi-05", 4), ("pi-01", 5),
    ]  # fmt: skip
    ran = await site(
        "start", "--all", "--deadline", "1h", "--max-unavailable", "1", "-o", "json", code=5
    )
    assert ran.error["code"] == "BudgetNeverMet"


async def test_a_device_is_in_one_run_at_a_time(site: Site) -> None:
    await site("start", "-d", "pi-01", *BOUNDS, "--no-watch")
    assert (await site("start", "--all", *BOUNDS, "-o", "json", code=5)).error[
        "code"
    ] == "RunActive"
    run = await site.only()
    assert (run["phase"], run["states"]) == ("Running", {"pending": 1})
    await site("watch", run["run_uid"][:8])
    assert (await site.run())["phase"] == "Succeeded"
    assert site.attempts() == [2, 1, 1, 1, 1]


async def test_cancelled_before_it_begins_and_on_its_way(site: Site) -> None:
    await site("start", "--all", *BOUNDS, "--no-watch")
    first = (await site.only())["run_uid"]
    await site("cancel", first[:8])
    assert (await site("watch", first, "-o", "json", code=1)).json["phase"] == "Cancelled"
    assert site.attempts() == [0] * 5
    for device in site.fleet.devices.values():
        device.seconds = 1.0
    going = asyncio.create_task(site.operator("upgrade", "start", "--all", *BOUNDS, "-o", "json"))
    while sum(site.attempts()) < 2:
        await asyncio.sleep(0.05)
    await cancel_run(site.store, await _second(site, first))  # a process of its own may be too late
    ran = await going
    assert (ran.code, ran.json["phase"], states(ran.json)) == (
        1,
        "Cancelled",
        ["succeeded"] * 2 + ["skipped"] * 3,
    )
    assert site.attempts() == [1, 1, 0, 0, 0]
    await site("cancel", ran.json["run_uid"])


async def _second(site: Site, first: str) -> str:
    from scores.keys import TASK_RUNS

    return next(key for key in await site.store.entries(TASK_RUNS, ["*"]) if key != first)


async def test_no_such_run(site: Site) -> None:
    for verb in ("watch", "show", "cancel"):
        assert (await site(verb, "nope", "-o", "json", code=2)).error["code"] == "NotFound"
    assert "no runs yet" in (await site("list")).err


async def test_killed_anywhere_and_resumed_no_attempt_is_doubled(site: Site) -> None:
    for device in site.fleet.devices.values():
        device.seconds = 0.4
    await site("start", "--all", "--deadline", "3m", "--max-unavailable", "2", "--no-watch")
    uid = (await site.only())["run_uid"]
    kills = 0
    for wait in (0.8, 0.9, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6):
        process = await site.operator.process("upgrade", "watch", uid)
        await asyncio.sleep(wait)
        if process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        await process.communicate()
    ended = (await site("watch", uid, "-o", "json")).json
    assert (ended["phase"], states(ended)) == ("Succeeded", ["succeeded"] * 5)
    assert site.attempts() == [1] * 5
    assert kills >= 5
    assert await site.left() == {}


async def test_two_watchers_at_once_are_fenced(site: Site) -> None:
    await site("start", "--all", "--deadline", "3m", "--max-unavailable", "2", "--no-watch")
    uid = (await site.only())["run_uid"]
    processes = [
        await site.operator.process("upgrade", "watch", uid, "-o", "json") for _ in range(3)
    ]
    said = [await process.communicate() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert {states(json.loads(out)).count("succeeded") for out, _ in said} == {5}
    assert site.attempts() == [1] * 5


async def test_a_lost_desired_bucket_repeats_nothing(site: Site) -> None:
    for device in site.fleet.devices.values():
        device.seconds = 1.0
    going = asyncio.create_task(site.run())
    while sum(site.attempts()) < 2:
        await asyncio.sleep(0.05)
    await site.fleet.client.jetstream().purge_stream(
        f"KV_{DESIRED}", subject=kv_subject(DESIRED, ">")
    )
    assert (await going)["phase"] == "Succeeded"
    assert site.attempts() == [1] * 5


def asked() -> Request:
    """What an operator asks for."""
    return Request(str(uuid.uuid4()), LINEAGE, timedelta(minutes=5), max_unavailable=99)


async def test_two_that_want_one_device_begin_one_run(site: Site) -> None:
    """Each time exactly one of three begins, and leaves the others nothing."""

    async def start(names: list[str]) -> str:
        async with Store(
            Context((site.operator.server.url,), None, None, site.operator.home)
        ) as store:
            devices = [found for found in await list_devices(store) if found.name in names]
            made = freeze(asked(), devices, [], await store.now())
            try:
                return (await begun(store, await create(store, made))).run.run_uid
            except Refused as error:
                return error.code

    for wanted in ([NAMES] * 3, [NAMES[:2], NAMES[1:3], (NAMES[2], NAMES[0])]) * 4:
        said = await asyncio.gather(*(start(list(names)) for names in wanted))
        running = [run for run in await all_runs(site.store) if run.phase == "Running"]
        assert sorted(said) == sorted([running[0].run_uid, "RunActive", "RunActive"])
        assert (len(running), running[0].begun) == (1, True)
        stored = await load(site.store, running[0].run_uid)
        await update(site.store, stored, give_up(stored.run))


async def test_a_start_that_was_killed_before_it_began_is_carried_on(site: Site) -> None:
    devices = await list_devices(site.store)
    made = freeze(asked(), devices, [], await site.store.now())
    await create(site.store, made)
    assert (await site("watch", made.run_uid, "-o", "json", code=0)).json["phase"] == "Succeeded"
    assert site.attempts() == [1] * 5


async def test_a_cancelled_run_takes_its_request_back(site: Site) -> None:
    """pi-01 is away while it is asked; when it is back nothing is asked of it."""
    site.fleet["pi-01"].plugged = False
    await site("start", "-d", "pi-01", *BOUNDS, "--no-watch")
    uid = (await site.only())["run_uid"]
    signing = load_signing(site.operator.home)
    await step(site.store, uid, signing)
    assert list((await site.left()).values()) == [False]
    made = (await site("cancel", uid, "-o", "json")).json
    assert (made["phase"], await site.left()) == ("Running", {f"pi-01.{made['deployment']}": True})
    site.fleet["pi-01"].plugged = True
    wire = (await read_deployment(site.store, DeploymentKey("pi-01", made["deployment"]))).desired
    assert wire.manifest is not None
    await site.fleet.say(wire.manifest)
    ended = (await site("watch", uid, "-o", "json", code=1)).json
    assert [ended["phase"], ended["targets"][0]["reason"]] == ["Cancelled", "Withdrawn"]
    assert (site.attempts(), await site.left()) == ([0] * 5, {})


@pytest.mark.timeout(300)
async def test_many_devices_of_a_wave_are_asked_in_seconds(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    names = [f"pi-{number:04}" for number in range(scaled(400, 2000))]
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, names, beat=5) as fleet:
            for device in fleet.devices.values():
                device.seconds = 60
            devices: list[Device] = []
            while sum(device.info is not None for device in devices) < len(names):
                devices = await list_devices(store)
            request = Request(str(uuid.uuid4()), LINEAGE, timedelta(hours=1), len(names))
            began = time.monotonic()
            made = freeze(request, devices, [], await store.now())
            await begun(store, await create(store, made))
            claimed = time.monotonic()
            await step(store, made.run_uid, UNSIGNED)
            asked = time.monotonic()
            print(f"\n{len(names)}: claimed {claimed - began:.1f} s, asked {asked - claimed:.1f} s")
            while not all(sum(device.asked.values()) == 1 for device in fleet.devices.values()):
                assert time.monotonic() < asked + 30
                await asyncio.sleep(0.05)
            looked = time.monotonic()
            await step(store, made.run_uid, UNSIGNED)
            print(f"one more look {time.monotonic() - looked:.1f} s")
            assert asked - began < len(names) / 20, "20 a second at the very least"
