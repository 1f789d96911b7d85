"""`harmony device forget` on a real server: nothing of the device is kept but that it was revoked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from scores.jetstream import kv_stream, kv_subject
from scores.keys import ACTUAL, BUCKETS, DESIRED, FLEET, HEARTBEAT, INFO, TASK_RUNS
from tests.integration.killed import Killer
from tests.integration.operator import Operator
from tests.integration.simfleet import SimFleet
from tests.integration.test_authority_copies import Command, let_in
from tests.natsauthority import GuardedServer
from tests.natsserver import NatsServer

MOTD = {"kind": "File", "name": "motd", "path": "/srv/motd", "content": "hi\n"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path / "guarded") as server:
        yield server


async def subjects(client: Any, device: str) -> list[str]:
    """Each subject of any bucket in which the device's name is a token."""
    found: list[str] = []
    for bucket in BUCKETS:
        answer = await client.request(
            f"$JS.API.STREAM.INFO.{kv_stream(bucket)}",
            json.dumps({"subjects_filter": ">"}).encode(),
            timeout=20,
        )
        found += (json.loads(answer.data)["state"].get("subjects") or {}).keys()
    return [subject for subject in found if device in subject.split(".")]


def names(ran: Any) -> dict[str, str]:
    return {one["device"]: one["state"] for one in ran.json}


@pytest.fixture
async def site(guarded: GuardedServer) -> AsyncIterator[tuple[Command, SimFleet]]:
    """Two devices with credentials, in a roster that was applied."""
    command = Command(guarded, guarded.home)
    await command.ok("server", "push")
    async with (
        guarded.client() as client,
        SimFleet(client, ["pi-01", "pi-02"]) as fleet,
    ):
        for name in ("pi-01", "pi-02"):
            await command.bundle(name)
        path = command.home / "web.json"
        path.write_text(json.dumps([MOTD]))
        await command.ok("fleet", "init")
        await command.ok("fleet", "device", "add", "pi-01", "pi-02", "--class", "web")
        await command.ok("fleet", "deployment", "add", "web", "--file", str(path))
        await command.ok("fleet", "apply", "--wait")
        await command.ok("fleet", "verify")
        yield command, fleet


async def test_a_revoked_dead_device_is_shown_and_forgotten_and_verify_is_clean(
    site: tuple[Command, SimFleet],
) -> None:
    command, fleet = site
    fleet["pi-01"].plugged = False
    await command.ok("device", "revoke", "pi-01")
    assert names(await command("devices", "-o", "json")) == {"pi-01": "revoked", "pi-02": "fresh"}
    assert "revoked" in (await command("devices")).out
    told = await command.ok("device", "forget", "pi-01", code=5)
    assert "harmony fleet device remove pi-01" in told
    await command.ok("device", "forget", "pi-01", "--force", code=5)
    await command.ok("fleet", "device", "remove", "pi-01")
    await command.ok("fleet", "apply")
    await command.ok("fleet", "verify", code=1)
    assert "forgotten" in await command.ok("device", "forget", "pi-01")
    await command.ok("fleet", "verify")
    await command.ok("fleet", "apply")
    await command.ok("fleet", "verify")
    assert names(await command("devices", "-o", "json")) == {"pi-02": "fresh"}
    assert await subjects(fleet.client, "pi-01") == [kv_subject(FLEET, "device.pi-01")]
    assert len(await subjects(fleet.client, "pi-02")) > 4
    await command.ok("device", "forget", "pi-01")  # again: nothing to do
    assert "pi-01" not in (command.home / "names.json").read_text()


async def test_it_is_refused_while_it_is_heard_and_force_tells_what_is_left(
    site: tuple[Command, SimFleet],
) -> None:
    command, fleet = site
    await command.ok("fleet", "device", "remove", "pi-01")
    before = await subjects(fleet.client, "pi-01")
    ran = await command("device", "forget", "pi-01", "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "DeviceHeard")
    assert await subjects(fleet.client, "pi-01") == before
    ran = await command("device", "forget", "pi-01", "--force", "-o", "json")
    assert ran.code == 0, ran.err
    assert any("what it had of web" in words for words in ran.json["left"])
    assert any("pi-01 is there still" in words for words in ran.json["left"])
    assert not await let_in(command.server, command.home / "pi-01-enroll.creds")  # type: ignore[arg-type]


async def test_no_stale_copy_brings_it_back(guarded: GuardedServer) -> None:
    first = Command(guarded, guarded.home)
    await first.ok("server", "push")
    one = await first.bundle("pi-01")
    stale = first.copy("stale")
    await first.ok("device", "forget", "pi-01")
    for words in (["server", "push"], ["server", "objects", "assets"]):
        await stale.ok(*words)
        assert not await let_in(guarded, one), words
        assert names(await stale("devices", "-o", "json")) == {}, words
    assert stale.known() == set()
    guarded.stop()
    guarded.wipe()  # only the copies remember
    guarded.start()
    for copy in (stale, first):
        copy.home.joinpath("context.toml").write_bytes(
            guarded.home.joinpath("context.toml").read_bytes()
        )
        await copy.ok("server", "push")
        assert not await let_in(guarded, one)
    again = await stale.bundle("pi-01")
    assert await let_in(guarded, again)
    assert not await let_in(guarded, one)
    await stale.ok("device", "revoke", "pi-01")
    assert names(await stale("devices", "-o", "json")) == {"pi-01": "revoked"}


async def test_killed_anywhere_the_next_one_ends_it(guarded: GuardedServer) -> None:
    command = Command(guarded, guarded.home)
    await command.ok("server", "push")
    async with guarded.client() as client, Killer(command.environment()) as kill:
        for at in range(1, 400):
            device = f"pi-{at:03}"
            creds = guarded.creds(device).rename(command.home / f"{device}-enroll.creds")
            for bucket, key in ((ACTUAL, f"{device}.web"), (DESIRED, f"{device}.web")):
                await client.request(kv_subject(bucket, key), b"{}", timeout=20)
            code, _ = await kill("forget", device, at=at, what="requests")
            if code == 0:
                break
            assert code == -9, at
            assert (await kill("forget", device))[0] == 0, at
            assert await subjects(client, device) == [kv_subject(FLEET, f"device.{device}")], at
            assert device not in command.known()
            if at % 10 == 1:
                assert not await let_in(guarded, creds), at
        assert at > 20
    assert names(await command("devices", "-o", "json")) == {}


# -- without an authority


@pytest.fixture
async def plain(
    nats_server: NatsServer, tmp_path: Path
) -> AsyncIterator[tuple[Operator, SimFleet, Store]]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, ["pi-01", "pi-02"]) as fleet:
            yield operator, fleet, store


async def test_a_home_without_an_authority_forgets_too_and_says_that_it_may_come_back(
    plain: tuple[Operator, SimFleet, Store],
) -> None:
    operator, fleet, store = plain
    applied = operator.file("web", MOTD)
    assert (await operator("apply", applied, "-d", "pi-01", "--wait")).code == 0
    ran = await operator("device", "forget", "pi-01", "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "DeviceHeard")
    ran = await operator("device", "forget", "pi-01", "--force", "-o", "json")
    assert any("no credentials to withdraw" in words for words in ran.json["left"])
    fleet["pi-01"].plugged = False
    ran = await operator("device", "forget", "pi-01", "--force")
    assert ran.code == 0
    assert await subjects(fleet.client, "pi-01") == []
    assert set(await store.entries(INFO)) == {"info.pi-02"}
    assert (await operator("device", "forget", "PI")).code == 2
    assert "its keys are gone" in (await operator("device", "forget", "never-there")).err


async def test_a_run_that_waits_for_it_is_ended_first(
    plain: tuple[Operator, SimFleet, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, fleet, store = plain
    for words in (("init",), ("device", "add", "pi-01", "pi-02", "--class", "web")):
        assert (await operator("fleet", *words)).code == 0
    for device in fleet.devices.values():
        device.plugged = False
    started = await operator(
        "upgrade", "start", "--all", "--deadline", "2h", "--max-unavailable", "2", "--no-watch"
    )
    assert started.code == 0, started.err
    assert (await operator("fleet", "device", "remove", "pi-01")).code == 0
    monkeypatch.setattr("harmony_fleet.observe.state.STALE_AFTER", timedelta(seconds=0))
    ran = await operator("device", "forget", "pi-01", "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, "RunActive")
    run = ran.error["hint"].split("harmony upgrade cancel ")[1].split(";")[0]
    assert (await operator("upgrade", "cancel", run)).code == 0
    ran = await operator("device", "forget", "pi-01")
    assert ran.code == 0, ran.err
    assert await subjects(fleet.client, "pi-01") == []
    assert "device.pi-02" in await store.entries(TASK_RUNS)
    assert set(await store.entries(HEARTBEAT)) == {"heartbeat.pi-02"}
