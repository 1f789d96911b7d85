"""A device whose memory is gone, and whose key of desired-state is gone, too, says what it told
last; it touches nothing and comes back to nothing that was removed.
"""

from __future__ import annotations

import asyncio

import pytest

from scores.keys import ACTUAL, DESIRED
from tests.fakes.ledger import FakeLedger
from tests.unit.engine.test_restart_on import Device, container
from tests.unit.engine.world import DEVICE, World, file

KEY = f"{DEVICE}.web"


async def _lose(world: World, gone: str) -> None:
    """The device is off; its state directory and the key go."""
    await world.stop()
    world.ledger = FakeLedger()
    if gone == "purged":
        world.plane.entries[DESIRED].pop(KEY)
    elif gone == "deleted":
        world.plane.set(DESIRED, KEY, None)
    else:
        world.plane.remake(DESIRED)


@pytest.mark.parametrize("gone", ["purged", "deleted", "remade"])
def test_what_was_told_last_is_told_as_lost(gone: str) -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.publish(7, file("a"), file("b"))
        await world.told("Converged", 7)
        await _lose(world, gone)
        await world.start()
        await world.told("Degraded", 7)
        said = world.said()
        assert (said["reason"], set(said["resources"])) == ("LedgerLost", {"File/a", "File/b"})
        assert {one["reason"] for one in said["resources"].values()} == {"LedgerLost"}
        assert set(world.disk) == {"/srv/a", "/srv/b"}
        await world.stop()
        await world.start()  # its own word is what it told last now
        await asyncio.sleep(20)
        assert world.said()["reason"] == "LedgerLost"

    world.run(test())


def test_a_deployment_that_was_told_before_the_last_one_is_known_by_its_deleted_key() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        world.publish(1, file("b"), deployment="other")
        await world.told("Converged", 1, "other")
        await _lose(world, "deleted")
        await world.start()
        await world.told("Degraded", 1)
        assert world.said()["reason"] == "LedgerLost"
        await world.told("Converged", 1, "other")

    world.run(test())


def test_an_older_deployment_whose_key_left_no_trace_is_known_by_what_was_told() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        for name in ("old", "older"):
            world.publish(1, file(name), deployment=name)
            await world.told("Converged", 1, name)
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        for name in ("old", "older"):
            world.plane.entries[DESIRED].pop(f"{DEVICE}.{name}")
        await world.stop()
        world.ledger = FakeLedger()
        await world.start()
        for name in ("old", "older"):
            await world.told("Degraded", 1, name)
            said = world.said(name)
            assert (said["reason"], set(said["resources"])) == ("LedgerLost", {f"File/{name}"})
        await world.told("Converged", 1)
        assert set(world.disk) == {"/srv/a", "/srv/old", "/srv/older"}

    world.run(test())


def test_marks_tell_of_a_deployment_that_is_told_nowhere() -> None:
    device = Device()
    world = device.world

    async def test() -> None:
        await device.applied(1, container())
        await _lose(world, "purged")
        world.plane.entries[ACTUAL].clear()
        await world.start()
        await world.until(lambda: world.said().get("reason") == "LedgerLost")
        assert set(world.said()["resources"]) == {"Container/app"}
        assert device.podman.get("app").state == "running"

    device.run(test)


def test_what_was_removed_is_not_told_and_a_link_that_is_cut_delays_only() -> None:
    world = World()

    async def test() -> None:
        await world.start()
        world.publish(1, file("a"))
        await world.told("Converged", 1)
        await world.stop()
        before = world.plane.entries[ACTUAL][KEY].data
        await world.start()
        world.publish(2, removed=True)
        await world.told("Removed", 2)
        await _lose(world, "purged")
        await world.start()
        await asyncio.sleep(20)
        assert world.said()["phase"] == "Removed"
        await _lose(world, "none left")
        world.plane.set(ACTUAL, KEY, before)
        failures = iter([True, False])

        def fail(call: str) -> None:
            if call == "told" and next(failures, False):
                world.plane.cut()

        world.plane.fail = fail
        await world.start()
        await asyncio.sleep(20)
        world.plane.mend()
        await world.until(lambda: world.said().get("reason") == "LedgerLost")

    world.run(test())
