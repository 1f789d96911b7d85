"""The client for programs: each example of docs/client.md runs as it stands there, against a real
server and a device that answers; and what a program may meet besides.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nats.aio.msg import Msg

from harmony_fleet.client import Client, HarmonyError, Options, connect
from harmony_fleet.context import Context
from scores import ContainerDetail, DeviceInfo, Manifest
from scores import File as FileScore
from scores.keys import ACTUAL, INFO, command_subject, info_key
from scores.manifest import WireManifest
from scores.names import format_time
from scores.status import Capabilities, OsInfo, ResourceStatus, UpdaterInfo
from tests import guide
from tests.integration.simulated import SINCE, SimulatedDevice, status_of
from tests.natsserver import NatsServer

LINEAGE = "7b0e0000-0000-4000-8000-000000000001"
MANIFEST = Manifest(deployment="web", scores=[FileScore(name="motd", path="/srv/m", content="x")])
EXAMPLES = [block for block in guide.blocks("client.md") if block.language == "python"]
SHOWN = [block for block in guide.blocks("client.md") if block.language == "text"]


@pytest.fixture
async def pi(nats_server: NatsServer) -> AsyncIterator[SimulatedDevice]:
    """The device of the page: it told of itself, is heard, has a container, and answers."""
    async with nats_server.client() as link:
        device = SimulatedDevice(link, "pi-01")
        async with Client(Context((nats_server.url,), None, None, Path("/nowhere"))) as client:
            await client.store.ensure_buckets()
        await told(device)
        await device.beat()
        yield device


async def told(device: SimulatedDevice) -> None:
    updater = UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"])
    info = DeviceInfo(
        device=device.name,
        labels={"site": "home"},
        agent_version="0.1.0",
        boot_id="5b0e62a2-5f1c-4e6b-9a0c-1f2d3c4b5a69",
        os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6.1"),
        kinds=["File", "Container", "SystemUpgrade"],
        capabilities=Capabilities(podman="5", updater=updater),
    )
    await device.put(INFO, info_key(device.name), info.canonical())


def bound(generation: int = 1) -> WireManifest:
    return MANIFEST.bind("pi-01", LINEAGE, generation)


async def has_a_container(device: SimulatedDevice) -> None:
    detail = ContainerDetail(state="Running", restarts=2, exit_code=137)
    digest = f"sha256:{'0' * 64}"
    container = ResourceStatus(
        phase="Ready", generation=1, since=SINCE, spec_digest=digest, status=detail
    )
    said = status_of(bound())
    await device.say(said.model_copy(update={"resources": {"Container/web": container}}))


async def answers(device: SimulatedDevice) -> None:
    async def logs(message: Msg) -> None:
        line = "2026-11-29T17:00:00.000000Z one"
        await message.respond(json.dumps({"ok": True, "lines": [line]}).encode())

    await device.client.subscribe(command_subject(device.name, "logs"), cb=logs)
    await device.client.flush()


async def example(code: str, home: Path, server: NatsServer, shows: list[str]) -> None:
    """Run it as a program until it has shown all that the page says; one that watches is ended."""
    around = {"HARMONY_SERVER": server.url, "HARMONY_HOME": str(home), "PYTHONUNBUFFERED": "1"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=os.environ | around,
    )  # fmt: skip
    said = b""
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while guide.unseen(shows, said.decode()) and (more := await process.stdout.readline()):
                said += more
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        error = (await process.stderr.read()).decode()
        await process.wait()
    assert guide.unseen(shows, said.decode()) == [], said.decode() + error


@pytest.mark.parametrize("at", range(len(EXAMPLES)), ids=[block.section for block in EXAMPLES])
async def test_an_example_of_the_page_shows_what_it_says(
    at: int, pi: SimulatedDevice, nats_server: NatsServer, tmp_path: Path
) -> None:
    block, section = EXAMPLES[at], EXAMPLES[at].section
    applied = asyncio.ensure_future(pi.converge("web")) if section == "Apply" else None
    if section == "Statuses by kind":
        await has_a_container(pi)
    elif section in ("A control plane that reads actual state", "Events"):
        await pi.say(status_of(bound()))
    await answers(pi)
    home = tmp_path / "home"
    home.mkdir()
    await example(block.text, home, nats_server, SHOWN[at].text.splitlines())
    if applied is not None:
        assert (await applied).generation == 1


async def test_a_watch_tells_of_each_change_and_of_what_cannot_be_read(
    pi: SimulatedDevice, nats_server: NatsServer
) -> None:
    """Other devices' are left out; a key that is gone, and one of nonsense, are told as such."""
    async with connect(server=nats_server.url) as client:
        watch = client.watch_statuses("pi-01")
        await pi.say(status_of(bound()))
        first = await anext(watch)
        assert (first.device, first.deployment, first.value) == ("pi-01", "web", status_of(bound()))
        assert first.at is not None
        assert abs((await client.now() - first.at).total_seconds()) < 60
        await SimulatedDevice(pi.client, "pi-02").say(status_of(MANIFEST.bind("pi-02", LINEAGE, 1)))
        await pi.put(ACTUAL, "pi-01.web", b"\xff")
        second = await anext(watch)
        assert (second.device, second.value, bool(second.problem)) == ("pi-01", None, True)
        await pi.put(ACTUAL, "pi-01.other", status_of(bound()).canonical())
        assert (await anext(watch)).problem == "KeyMismatch"
        await client.store.delete_any(ACTUAL, "pi-01.web", second.revision)
        third = await anext(watch)
        assert (third.deployment, third.value, third.problem) == ("web", None, "")
        await watch.aclose()


async def test_a_watch_goes_on_through_a_restart_of_the_server(
    pi: SimulatedDevice, nats_server: NatsServer
) -> None:
    async with connect(server=nats_server.url) as client:
        watch = client.watch_heartbeats()
        assert (await anext(watch)).device == "pi-01"
        nats_server.restart()
        coming = asyncio.ensure_future(anext(watch))
        async with nats_server.client() as link:
            again = SimulatedDevice(link, "pi-01")
            again.beats = 6
            await again.beat()
            change = await asyncio.wait_for(coming, 60)
        assert change.value is not None
        assert change.value.seq == 7
        await watch.aclose()


async def test_a_plan_writes_nothing_and_a_refusal_is_raised(
    pi: SimulatedDevice, nats_server: NatsServer, tmp_path: Path
) -> None:
    context = Context((nats_server.url,), None, None, tmp_path)
    async with Client(context) as client:
        planned = await client.plan(MANIFEST, labels={"site": "home"})
        assert [(item.plan.name, item.plan.action) for item in planned.results] == [
            ("pi-01/web", "create")
        ]
        assert await pi.desired("web") is None
        run = await client.apply(lambda device: [MANIFEST], ["pi-01"])
        assert (run.exit_code, run.written) == (0, True)
        assert [row.converged for row in await client.status()] == [False]
        other = Options(lineage=LINEAGE)
        with pytest.raises(HarmonyError) as refused:
            await client.apply(MANIFEST, ["pi-01"], options=other)
        assert (refused.value.code, refused.value.exit_code) == ("LineageChanged", 3)
        with pytest.raises(HarmonyError, match="cannot use the device"):
            await client.deployments(device="../x")
        removal = asyncio.ensure_future(pi.converge("web", 2))
        gone = await client.delete("web", ["pi-01"], options=Options(wait_seconds=60))
        await removal
        assert gone.exit_code == 0
        assert (await client.wait("pi-01", "web", removed=True)).phase == "Removed"


async def test_a_run_is_watched_until_it_has_ended(
    pi: SimulatedDevice, nats_server: NatsServer, tmp_path: Path
) -> None:
    from datetime import timedelta

    from harmony_fleet.client import Request

    async with Client(Context((nats_server.url,), None, None, tmp_path)) as client:
        uid = "3f2a0000-0000-4000-8000-000000000001"
        request = Request(uid, LINEAGE, timedelta(hours=1), max_unavailable=1)
        run = await client.upgrades.start(await client.upgrades.plan(["pi-01"], request))
        assert run.created_at <= format_time(await client.now())
        watch = client.upgrades.watch(uid[:4])
        assert (await anext(watch)).phase == "Running"
        await client.upgrades.cancel(uid)
        phases = [seen.phase async for seen in watch]
        assert phases[-1] == "Cancelled"
        assert [item.run_uid for item in await client.upgrades.all()] == [uid]
