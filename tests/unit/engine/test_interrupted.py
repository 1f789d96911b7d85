"""A newer generation, or a removal, cuts what is under way for an older spec: what hangs delays
nothing that came later. A pass that is still right is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from harmony_agent.topology.images import PullProgress, PullRequest
from tests.unit.engine.test_restart_on import SERVICE, Device, container, unit
from tests.unit.engine.world import World, file


async def _never(*_arguments: Any) -> Any:
    await asyncio.sleep(100_000)


@pytest.fixture
def device() -> Device:
    return Device()


async def _hang(device: Device) -> None:
    """Generation 1 hangs in the pull of its image."""
    pull = device.images.pull
    begun = asyncio.Event()

    async def hangs(request: PullRequest, told: Callable[[PullProgress], None]) -> None:
        if "bad" in request.ref:
            begun.set()
            await _never()
        await pull(request, told)

    device.images.pull = hangs  # type: ignore[method-assign]
    device.world.publish(1, container(image="registry.test/bad:1"))
    await begun.wait()


def test_a_pull_that_hangs_delays_no_good_image(device: Device) -> None:
    async def test() -> None:
        await _hang(device)
        began = device.world.loop.passed
        device.world.publish(2, container())
        await device.world.told("Converged", 2)
        assert device.world.loop.passed - began < 10
        assert device.podman.get("app").state == "running"

    device.run(test)


def test_a_pull_that_hangs_delays_no_removal(device: Device) -> None:
    async def test() -> None:
        await _hang(device)
        began = device.world.loop.passed
        device.world.publish(2, removed=True)
        await device.world.told("Removed", 2)
        assert device.world.loop.passed - began < 10

    device.run(test)


def test_a_job_that_hangs_delays_no_newer_unit(device: Device) -> None:
    async def test() -> None:
        start, begun = device.systemd.start, asyncio.Event()

        async def hangs(name: str) -> str:
            begun.set()
            return str(await _never())

        device.systemd.start = hangs  # type: ignore[method-assign]
        device.world.publish(1, unit(content=SERVICE))
        await begun.wait()
        device.systemd.start = start  # type: ignore[method-assign]
        device.world.publish(2, unit(content=SERVICE + "Nice=1\n"))
        await device.world.told("Converged", 2)
        assert device.world.loop.passed < 15

    device.run(test)


@pytest.mark.parametrize("call", ["observe", "apply"])
def test_a_look_or_a_write_that_hangs_delays_no_newer_file(call: str) -> None:
    world = World()

    async def test() -> None:
        await world.start()
        begun = asyncio.Event()
        world.files.before = lambda what, _name: begun.set() if what == call else None
        if call == "observe":
            world.files.hung.add("a")
        else:
            world.files.gates["a"] = asyncio.Event()  # type: ignore[assignment]
        world.publish(1, file("a"))
        await begun.wait()
        world.files.hung.clear()
        world.files.gates.clear()
        world.publish(2, file("a", content="2"))
        await world.told("Converged", 2)
        assert (world.disk["/srv/a"], world.loop.passed < 10) == (b"2", True)

    world.run(test())


def test_a_removal_under_way_goes_on_through_the_next_generation() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"), file("b"))
        await world.told("Converged", 1)
        gate = world.files.gates["a"] = asyncio.Event()  # type: ignore[assignment]
        began: list[str] = []
        world.files.before = lambda what, name: began.append(name) if what == "apply" else None
        world.publish(2, file("b"), allow_prune=1)
        await world.until(lambda: began)
        world.publish(3, file("b", content="2"))
        await asyncio.sleep(2)
        gate.set()
        await world.told("Converged", 3)
        assert (began.count("a"), "/srv/a" in world.disk) == (1, False)
        assert world.owned("File/a") is None

    world.run(test())


def test_what_is_wanted_again_while_it_is_taken_off_stays() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"), file("b"))
        await world.told("Converged", 1)
        world.files.gates["a"] = asyncio.Event()  # type: ignore[assignment]
        begun = asyncio.Event()
        world.files.before = lambda what, name: (
            begun.set() if (what, name) == ("apply", "a") else None
        )
        world.publish(2, file("b"), allow_prune=1)
        await begun.wait()
        world.publish(3, file("a"), file("b"))
        await world.told("Converged", 3)
        assert world.disk["/srv/a"] == b"1"

    world.run(test())
