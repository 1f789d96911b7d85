"""The link to a real podman: it is away, it hangs, it is restarted; and nothing waits for it (rows
15, 16).
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harmony_agent.adapters.podman import transport
from harmony_agent.adapters.podman.client import Podman
from harmony_agent.core.errors import Transient
from harmony_agent.topology.containers import EngineRefused
from tests.contract.containers_world import RealWorld, socket_of
from tests.contract.test_containers import SLEEP, asked
from tests.device.image import SUITES
from tests.device.lab import Lab, missing
from tests.device.machine import Device
from tests.device.signals import signal_podman

pytestmark = pytest.mark.device


@pytest.fixture(scope="module", params=SUITES)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    if lacks := missing():
        pytest.skip("; ".join(lacks))
    with Lab() as lab:
        made = lab.device(request.param)
        yield made
        made.close()


@pytest.fixture
async def world(device: Device) -> AsyncIterator[RealWorld]:
    made = RealWorld(device)
    yield made
    await made.clean()


async def failure(podman: Podman) -> Transient:
    with pytest.raises(Transient) as caught:
        await podman.list({})
    return caught.value


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def closed(before: int) -> None:
    """Wait until no more is open than before."""
    async with asyncio.timeout(20):
        while descriptors() > before:
            await asyncio.sleep(0.02)


async def test_a_hanging_service_times_out_quickly_and_by_name(
    world: RealWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CALL_SECONDS", 1.0)
    monkeypatch.setattr(transport, "PING_SECONDS", 0.5)
    podman = Podman(socket_of(world.device))
    await podman.list({})
    before = descriptors()
    signal_podman(world.device, signal.SIGSTOP)
    try:
        began = time.monotonic()
        errors = await asyncio.gather(*(failure(podman) for _ in range(30)))
        took = time.monotonic() - began
        assert {(error.reason, error.phase) for error in errors} == {
            ("PodmanUnreachable", "Unknown")
        }
        assert took < 20  # one behind the other they would take longer
        began = time.monotonic()
        await failure(podman)
        assert time.monotonic() - began < 15
        await closed(before)
    finally:
        signal_podman(world.device, signal.SIGCONT)
    for _ in range(100):
        with suppress(Transient):
            await podman.list({})
            break
        await asyncio.sleep(0.1)
    assert await podman.list({}) == []
    await podman.close()


async def test_no_socket_and_nobody_behind_it(world: RealWorld, tmp_path: Path) -> None:
    for path in (tmp_path / "none.sock", tmp_path):
        error = await failure(Podman(str(path)))
        assert (error.reason, error.phase) == ("PodmanUnavailable", "Blocked")
        assert str(path) in str(error)
    world.device.systemctl("stop", "podman.socket", "podman.service", user=True)
    signal_podman(
        world.device, signal.SIGKILL, needed=False
    )  # a process of it that isn't in its unit would answer on
    error = await failure(Podman(socket_of(world.device)))
    assert (error.reason, error.phase) == ("PodmanUnavailable", "Blocked")
    world.device.systemctl("start", "podman.socket", user=True)


async def test_events_go_on_after_the_service_was_restarted(world: RealWorld) -> None:
    heard: list[str] = []

    async def listen() -> None:
        async for event in world.containers.events():
            heard.append(event.name)

    listening = asyncio.create_task(listen())
    await asyncio.sleep(0.5)
    signal_podman(world.device, signal.SIGKILL)
    deadline = time.monotonic() + 60
    number = 0
    while not heard and time.monotonic() < deadline:
        number += 1
        with suppress(Transient):
            await world.containers.create(asked(world, f"c{number}"))
        await asyncio.sleep(0.5)
    listening.cancel()
    await asyncio.wait([listening])
    assert heard
    assert len(await world.containers.list({})) == number


async def test_a_call_that_is_cancelled_leaves_nothing_open(world: RealWorld) -> None:
    ident = await world.containers.create(asked(world, "web", *SLEEP))
    await world.containers.start(ident)
    before = descriptors()
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.containers.stop(ident, 60), 0.5)
    await closed(before)
    assert time.monotonic() - began < 30  # the container is given 60 s


async def test_a_probe_that_takes_too_long(world: RealWorld) -> None:
    ident = await world.containers.create(asked(world, "web", *SLEEP))
    await world.containers.start(ident)
    with pytest.raises(Transient) as caught:
        await world.containers.exec(ident, ["/bin/sleep", "100"], 0.5)
    assert caught.value.reason == "Timeout"
    assert "0.5 s" in str(caught.value)
    assert (await world.containers.list({}))[0].state == "running"


async def test_the_service_dies_under_a_call(world: RealWorld) -> None:
    ident = await world.containers.create(asked(world, "web", *SLEEP))
    await world.containers.start(ident)
    stopping = asyncio.create_task(world.containers.stop(ident, 30))
    await asyncio.sleep(0.5)
    signal_podman(world.device, signal.SIGKILL)
    with pytest.raises(Transient) as caught:
        await stopping
    assert caught.value.reason in ("PodmanUnreachable", "PodmanUnavailable")
    await world.containers.stop(ident, 0)
    assert (await world.containers.list({}))[0].state in ("exited", "stopping")


async def test_what_a_creation_carries_is_in_no_error(world: RealWorld) -> None:
    """Podman's words of a refused creation are apart from the message."""
    payload = {
        **asked(world, "web"),
        "env": {"P": "hunter2"},
        "netns": {"nsmode": "bridge"},
        "networks": {"nope": {}},
    }
    with pytest.raises(EngineRefused) as caught:
        await world.containers.create(payload)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
