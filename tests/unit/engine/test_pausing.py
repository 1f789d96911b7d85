"""The engine while something is paused: nothing changes, all is told, and it goes on in its time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.changes import Moment
from harmony_agent.core.errors import Transient
from harmony_agent.engine.report.pausing import KEEP_SECONDS, NONCE_SECONDS
from scores.signatures import COMMAND
from tests.keys import FOREIGN, ROSTER, trust
from tests.unit.engine.test_pacing import ONCE, Podman
from tests.unit.engine.world import DEVICE, World, file


@pytest.fixture
def world() -> World:
    return World()


async def ask(world: World, verb: str, request: dict[str, Any] | bytes = b"") -> dict[str, Any]:
    data = request if isinstance(request, bytes) else json.dumps(request).encode()
    answer: dict[str, Any] = json.loads(await world.engine.commands.answer(verb, data))
    return answer


async def request(world: World, verb: str, **fields: Any) -> dict[str, Any]:
    nonce = (await ask(world, "challenge"))["nonce"]
    made = {"api": "harmony/v1", "verb": verb, "device": DEVICE, "nonce": nonce, "signatures": []}
    return {**made, **fields}


async def pause(world: World, seconds: int = 600, **fields: Any) -> dict[str, Any]:
    return await ask(world, "pause", await request(world, "pause", seconds=seconds, **fields))


async def resume(world: World, **fields: Any) -> dict[str, Any]:
    return await ask(world, "resume", await request(world, "resume", **fields))


async def running(world: World, *scores: dict[str, Any]) -> None:
    await world.start()
    world.publish(1, *(scores or (file("a"),)))
    await world.told("Converged", 1)


async def edited(world: World) -> None:
    """Edit a by hand, and wait until that is told."""
    world.disk["/srv/a"] = b"by hand"
    await world.until(lambda: world.said()["resources"]["File/a"]["reason"] == "DriftReported")


def test_drift_is_told_and_left_and_repaired_when_it_ends_by_itself(world: World) -> None:
    async def test() -> None:
        await running(world)
        began = world.loop.passed
        answer = await pause(world, deployment="web")
        assert (answer["ok"], answer["busy"]) == (True, [])
        await edited(world)
        said = world.said()
        assert said["paused"] == {"scope": "deployment", "until": answer["until"]}
        assert (said["phase"], said["resources"]["File/a"]["drift"]["action"]) == (
            "Degraded",
            "reported",
        )
        await asyncio.sleep(began + 590 - world.loop.passed)
        assert world.disk["/srv/a"] == b"by hand"
        await world.until(lambda: world.disk["/srv/a"] == b"1", 20)
        await world.told("Converged", 1)
        assert "paused" not in world.said()
        assert world.ledger.paused == []

    world.run(test())


def test_it_outlives_the_agent_and_ends_without_a_network(world: World) -> None:
    async def test() -> None:
        await running(world)
        await pause(world)
        await edited(world)
        await world.stop()
        world.plane.cut()
        await asyncio.sleep(100)
        await world.start()
        await asyncio.sleep(400)
        assert world.disk["/srv/a"] == b"by hand"
        await world.until(lambda: world.disk["/srv/a"] == b"1", 110)

    world.run(test())


def test_a_reboot_with_a_clock_that_is_far_ahead_or_behind(world: World) -> None:
    async def test() -> None:
        await running(world)
        await pause(world)
        await edited(world)
        await asyncio.sleep(2 * KEEP_SECONDS + 1)  # it keeps what is left
        await world.stop()
        (kept,) = world.ledger.paused
        assert kept.left <= (600 - 2 * KEEP_SECONDS + 10) * 1e6
        future = Moment("before", 5, kept.at.wall + 10**15)  # it was set while the clock was ahead
        world.ledger.paused = [replace(kept, at=future)]
        await world.start()
        await asyncio.sleep(kept.left / 1e6 - 20)
        assert world.disk["/srv/a"] == b"by hand"
        await world.until(lambda: world.disk["/srv/a"] == b"1", 40)
        await world.told("Converged", 1)

    world.run(test())


def test_a_manifest_waits_and_is_taken_when_it_is_resumed(world: World) -> None:
    async def test() -> None:
        await running(world)
        await pause(world, deployment="web")
        world.publish(2, file("a", content="2"))
        await world.told("Held", 1)
        said = world.said()
        assert (said["reason"], said["rejected"]["generation"]) == ("Paused", 2)
        await asyncio.sleep(120)
        assert world.disk["/srv/a"] == b"1"
        answer = await resume(world, deployment="web")
        assert (answer["ended"], answer["until"]) == (["web"], "")
        await world.told("Converged", 2)
        assert world.disk["/srv/a"] == b"2"

    world.run(test())


def test_a_removal_waits_also_one_that_was_under_way(world: World) -> None:
    async def test() -> None:
        await running(world, file("a"), file("b", after=["File/a"]))
        await pause(world, deployment="web")
        world.publish(2, removed=True)
        await world.told("Held", 1)
        await asyncio.sleep(60)
        assert world.disk.keys() == {"/srv/a", "/srv/b"}
        (held,) = world.ledger.paused
        await world.stop()
        world.ledger.paused = []
        await world.start()
        world.files.before = _refuses
        await world.told("Removing", 2)
        world.ledger.paused = [held]
        await world.stop()
        await world.start()
        await world.until(lambda: world.status("File/b").reason == "Paused")
        await asyncio.sleep(60)
        assert world.disk.keys() == {"/srv/a", "/srv/b"}
        await resume(world)
        await world.told("Removed", 2)
        assert world.disk == {}

    world.run(test())


def _refuses(call: str, _name: str) -> None:
    if call == "apply":
        raise Transient("IoError", "cannot write", delay=1.0)


def test_the_whole_device_and_a_deployment_that_is_new_to_it(world: World) -> None:
    async def test() -> None:
        await running(world)
        await pause(world)
        world.publish(1, file("n"), deployment="new")
        await world.told("Held", None, "new")
        await world.until(lambda: "paused" in world.said())
        assert world.said()["paused"]["scope"] == "device"
        answer = await resume(world, deployment="web")
        assert answer["ended"] == []
        assert answer["until"]  # the device's own goes on
        await resume(world)
        await world.told("Converged", 1, "new")

    world.run(test())


def test_a_pass_that_is_under_way_does_its_step_and_no_other(world: World) -> None:
    async def test() -> None:
        await running(world)
        working = asyncio.Event()

        async def slow(*_args: Any) -> None:
            working.set()
            await asyncio.sleep(30)

        world.engine.kinds["File"].apply = slow  # type: ignore[method-assign]
        world.disk["/srv/a"] = b"by hand"
        await working.wait()
        assert (await pause(world))["busy"] == ["File/a"]
        await world.until(lambda: world.said()["resources"]["File/a"]["reason"] == "DriftReported")

    world.run(test())


def test_what_ended_or_does_not_live_is_told_and_not_restarted() -> None:
    podman = Podman()
    world = podman.world
    probe = {"exec": ["alive"], "period_seconds": 1, "failure_threshold": 2}

    async def test() -> None:
        await world.start()
        world.publish(1, {**ONCE, "restart": "always", "liveness": probe})
        await world.told("Converged", 1)
        assert podman.containers is not None
        one, run = podman.containers.get("job"), podman.containers.get("job").started
        await pause(world)
        podman.containers.exec_codes["alive"] = 1
        await world.until(lambda: world.status("Container/job").reason == "Paused")
        assert "liveness" in world.status("Container/job").message
        await asyncio.sleep(60)
        assert one.started == run
        podman.containers.exec_codes["alive"] = 0
        await world.until(lambda: world.status("Container/job").phase == "Ready")
        podman.containers.exits("job", 1)
        await world.until(lambda: world.status("Container/job").phase == "Degraded")
        await asyncio.sleep(60)
        assert (one.state, world.status("Container/job").reason) == ("exited", "Paused")
        await resume(world)
        await world.until(lambda: one.started != run)

    world.run(test())


def test_a_full_disk_pauses_nothing_and_ends_what_is_over(world: World) -> None:
    async def test() -> None:
        await running(world)
        world.ledger.full = True
        assert (await pause(world))["error"]["code"] == "LedgerUnwritable"
        world.ledger.full = False
        await pause(world, 60)
        await edited(world)
        world.ledger.full = True
        assert (await resume(world))["error"]["code"] == "LedgerUnwritable"
        await world.until(lambda: not world.engine.state.pauses.shown(), 70)
        world.ledger.full = False
        await world.until(lambda: world.ledger.paused == [], 10)

    world.run(test())


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"device": "pi-02"}, "bad-request"),
        ({"verb": "resume"}, "bad-request"),
        ({"verb": "exec"}, "bad-request"),
        ({"seconds": 0}, "bad-request"),
        ({"seconds": 7 * 86_400 + 1}, "bad-request"),
        ({"seconds": None}, "bad-request"),
        ({"more": 1}, "bad-request"),
        ({"deployment": "other"}, "unknown-deployment"),
        ({"nonce": "0" * 32}, "nonce-unknown"),
        ({"nonce": "x"}, "bad-request"),
    ],
)
def test_what_is_refused_pauses_nothing(world: World, changed: dict[str, Any], code: str) -> None:
    async def test() -> None:
        await running(world)
        asked = {**await request(world, "pause", seconds=600), **changed}
        assert (await ask(world, "pause", asked))["error"]["code"] == code
        assert (await ask(world, "pause", b"{"))["error"]["code"] == "bad-request"
        assert world.engine.state.pauses.shown() == {}

    world.run(test())


def test_no_request_is_taken_twice_or_late(world: World) -> None:
    async def test() -> None:
        await running(world)
        asked = await request(world, "pause", seconds=600)
        assert (await ask(world, "pause", asked))["ok"]
        await resume(world)
        assert (await ask(world, "pause", asked))["error"]["code"] == "nonce-unknown"
        late = await request(world, "pause", seconds=600)
        await asyncio.sleep(NONCE_SECONDS + 1)
        assert (await ask(world, "pause", late))["error"]["code"] == "nonce-unknown"
        asked = await request(world, "pause", seconds=600)
        for _ in range(200):
            await ask(world, "challenge")
        assert (await ask(world, "pause", asked))["error"]["code"] == "nonce-unknown"

    world.run(test())


def test_where_manifests_are_signed_requests_are(world: World) -> None:
    async def test() -> None:
        await running(world)
        world.engine.pausing._trust = trust()
        assert (await pause(world))["error"]["code"] == "SignatureMissing"
        asked = await request(world, "pause", seconds=600)
        good = {**asked, "signatures": [ROSTER.entry(asked, COMMAND)]}
        altered = {**good, "seconds": 6000}
        assert (await ask(world, "pause", altered))["error"]["code"] == "SignatureInvalid"
        as_manifest = {**asked, "signatures": [ROSTER.entry(asked)]}
        assert (await ask(world, "pause", as_manifest))["error"]["code"] == "SignatureInvalid"
        foreign = {**asked, "signatures": [FOREIGN.entry(asked, COMMAND)]}
        assert (await ask(world, "pause", foreign))["error"]["code"] == "SignatureUnknownKey"
        assert world.engine.state.pauses.shown() == {}
        assert (await ask(world, "pause", good))["ok"]
        assert (await resume(world))["error"]["code"] == "SignatureMissing"

    world.run(test())
