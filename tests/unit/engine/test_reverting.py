"""A generation with `revert_after` that isn't Converged in its time: the device goes back by itself, once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harmony_agent.core.errors import Transient
from harmony_agent.core.reverts import BOOT_SECONDS, GRACE_SECONDS
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.kinds.volume import VolumeReconciler
from scores.keys import DESIRED
from tests.fakes.engine_objects import FakeVolumes
from tests.unit.engine.test_pausing import pause, resume
from tests.unit.engine.test_reverting_machine import CutLedger
from tests.unit.engine.world import DEVICE, World, file

FIRST = (file("a", content="1"), file("b"))
SECOND = (file("a", content="2"), file("bad"))
KEY = f"{DEVICE}.web"


@pytest.fixture
def world() -> World:
    return World()


def broken(world: World, name: str = "bad") -> None:
    """A resource of this name never comes up."""

    def fail(call: str, which: str) -> None:
        if call == "apply" and which == name:
            raise Transient("DiskBroken", "no such disk")

    world.files.before = fail


async def started(world: World) -> None:
    await world.start()
    broken(world)


async def tried(world: World, seconds: int = 40, *scores: dict[str, Any]) -> None:
    """Generation 1 is good, generation 2 breaks."""
    await started(world)
    world.publish(1, *FIRST)
    await world.told("Converged", 1)
    world.publish(2, *(scores or SECOND), revert_after=f"{seconds}s")
    await world.told("Degraded", 2)


def reverted(world: World) -> bool:
    return world.engine.state.deployments["web"].refused is not None


def as_first(world: World) -> bool:
    return world.disk == {"/srv/a": b"1", "/srv/b": b"1"}


def test_it_goes_back_without_a_network_and_stays(world: World) -> None:
    async def test() -> None:
        await tried(world)
        began = world.loop.passed
        assert world.disk == {"/srv/a": b"2"}
        world.plane.cut()
        await world.until(lambda: reverted(world) and as_first(world), 150)
        assert 35 <= world.loop.passed - began <= 45
        await world.stop()
        await started(world)
        assert reverted(world)
        await asyncio.sleep(300)
        assert as_first(world)
        world.plane.mend()
        await world.told("Rejected", 1)
        said = world.said()
        assert (said["reason"], said["rejected"]["generation"]) == ("Reverted", 2)
        assert "File/bad: no such disk" in said["message"]
        assert {key: one["phase"] for key, one in said["resources"].items()} == {
            "File/a": "Ready",
            "File/b": "Ready",
        }
        await asyncio.sleep(300)
        assert as_first(world)
        written = world.ledger.writes
        await asyncio.sleep(300)
        assert world.ledger.writes == written

    world.run(test())


def test_the_same_bytes_are_refused_and_a_newer_generation_is_taken(world: World) -> None:
    async def test() -> None:
        await tried(world)
        await world.told("Rejected", 1)
        for scores in (SECOND, FIRST):
            world.publish(2, *scores, revert_after="100s")
            await asyncio.sleep(10)
            assert world.said()["generation"] == 1
        assert world.said()["reason"] == "GenerationReused"
        world.plane.set(DESIRED, KEY, None)
        await world.until(lambda: world.said()["reason"] == "Reverted")
        world.publish(1, *FIRST)
        await asyncio.sleep(10)
        assert world.said()["reason"] == "Reverted"
        world.publish(3, file("a", content="3"), file("b"), revert_after="100s")
        await world.told("Converged", 3)
        assert world.said()["rejected"] is None
        assert world.disk["/srv/a"] == b"3"

    world.run(test())


def test_what_converges_in_its_time_stays(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)
        world.publish(2, file("a", content="2"), file("b"), revert_after="30s")
        await world.told("Converged", 2)
        await asyncio.sleep(40)
        broken(world, "a")
        world.disk["/srv/a"] = b"by hand"
        await world.told("Degraded", 2)
        await asyncio.sleep(100)
        assert not reverted(world)

    world.run(test())


def test_what_breaks_within_its_time_goes_back(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)
        world.publish(2, file("a", content="2"), file("b"), revert_after="50s")
        await world.told("Converged", 2)
        broken(world, "b")
        world.disk["/srv/b"] = b"by hand"
        await world.told("Degraded", 2)
        await world.told("Rejected", 1)

    world.run(test())


def test_it_goes_back_to_the_last_that_was_converged(world: World) -> None:
    async def test() -> None:
        await tried(world, 40)
        world.publish(3, file("a", content="3"), file("bad"), revert_after="50s")
        await world.told("Degraded", 3)
        await world.told("Rejected", 1)
        assert as_first(world)
        assert world.said()["rejected"]["generation"] == 3
        world.publish(4, file("a", content="4"), file("bad"), revert_after="50s")
        await world.told("Degraded", 4)
        await world.told("Rejected", 1)
        assert as_first(world)

    world.run(test())


def test_with_nothing_to_go_back_to_it_stays(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *SECOND, revert_after="20s")
        await world.told("Degraded", 1)
        await asyncio.sleep(100)
        assert world.said()["generation"] == 1
        assert world.ledger.kept == []

    world.run(test())


def test_one_that_works_is_gone_back_to_though_a_leftover_still_stands(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)

        def fail(call: str, name: str) -> None:
            if call == "apply" and name in ("b", "bad"):
                raise Transient("DiskBroken", "no such disk")

        world.files.before = fail
        world.publish(2, file("a", content="2"))
        await world.told("Degraded", 2)
        world.publish(3, *SECOND, revert_after="40s")
        await world.told("Degraded", 3)
        await world.told("Rejected", 2)
        assert world.disk == {"/srv/a": b"2", "/srv/b": b"1"}
        assert world.said()["rejected"]["generation"] == 3

    world.run(test())


def test_a_good_one_of_before_a_restart_is_known(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)
        await world.stop()
        await started(world)
        world.files.hung = {"a"}
        world.publish(2, *SECOND, revert_after="50s")
        await world.told("Degraded", 2)
        world.files.hung = set()
        await world.told("Rejected", 1)

    world.run(test())


def test_another_boot_with_a_wrong_clock_counts_on(world: World) -> None:
    async def test() -> None:
        await tried(world, 600)
        world.plane.cut()
        await asyncio.sleep(500)
        await world.stop()
        world.boot = "2"
        world.clock.offset -= 10_000_000
        await started(world)
        await asyncio.sleep(20)
        assert not reverted(world)
        await world.stop()
        world.boot = "3"
        world.clock.offset += 20_000_000
        await started(world)
        assert not reverted(world)
        await world.until(lambda: reverted(world), 100 + GRACE_SECONDS)
        await world.until(lambda: as_first(world))

    world.run(test())


def test_boots_that_end_at_once_come_to_an_end(world: World) -> None:
    async def test() -> None:
        await tried(world, 40)
        world.plane.cut()
        boots = 0
        while not reverted(world):
            await world.stop()
            boots += 1
            assert boots < 40 / BOOT_SECONDS + GRACE_SECONDS / BOOT_SECONDS + 3
            world.boot = f"boot {boots}"
            await started(world)
            await asyncio.sleep(2)
        await world.until(lambda: as_first(world))

    world.run(test())


def test_a_pause_stops_the_time(world: World) -> None:
    async def test() -> None:
        await tried(world, 40)
        await pause(world, 3600)
        await asyncio.sleep(600)
        assert not reverted(world)
        await resume(world)
        await world.told("Rejected", 1)

    world.run(test())


def test_names_that_it_may_need_again_are_nobody_else_s(world: World) -> None:
    async def test() -> None:
        await tried(world)
        world.publish(1, file("other", "/srv/b"), deployment="db")
        await world.told("Rejected", None, "db")
        assert world.said("db")["reason"] == "OwnedByAnotherDeployment"
        await world.told("Rejected", 1)
        assert as_first(world)

    world.run(test())


def test_names_are_free_when_it_stays(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)
        world.publish(2, file("a", content="2"), revert_after="30s")
        await world.told("Converged", 2)
        world.publish(1, file("other", "/srv/b"), deployment="db")
        await world.told("Rejected", None, "db")
        await world.told("Converged", 1, "db")

    world.run(test())


def test_a_device_that_lost_its_memory_doesn_t_take_it_again(world: World) -> None:
    async def test() -> None:
        await tried(world)
        await world.told("Rejected", 1)
        await world.stop()
        world.ledger.stored, world.ledger.owned, world.ledger.kept = {}, {}, []
        await started(world)
        await asyncio.sleep(300)
        assert as_first(world)
        assert world.said()["rejected"] == {"generation": 2, "reason": "Reverted", "errors": []}
        world.publish(3, *FIRST)
        await world.told("Converged", 3)

    world.run(test())


def test_a_volume_that_the_refused_generation_made_keeps_its_data() -> None:
    volumes = FakeVolumes()

    def kinds(state: DeviceState) -> dict[str, Any]:
        view = DeviceStateView(state, "Volume")
        return {"Volume": VolumeReconciler(volumes, view, device=DEVICE)}

    def volume(name: str, **fields: Any) -> dict[str, Any]:
        return {"kind": "Volume", "name": name, **fields}

    world = World(kinds)

    async def test() -> None:
        await world.start()
        world.publish(1, volume("old", on_remove="delete-data"))
        await world.told("Converged", 1)
        world.publish(2, volume("new"), revert_after="20s")
        await world.until(lambda: world.said().get("reason") == "RevertLosesData")
        made = [volume("new", on_remove="delete-data"), volume("bad", driver="odd")]
        world.publish(3, volume("old", on_remove="delete-data"), *made, revert_after="20s")
        await world.until(lambda: "new" in volumes.made)
        await world.until(lambda: world.said().get("reason") == "Reverted")
        await asyncio.sleep(30)
        assert set(volumes.made) == {"old", "new"}
        assert set(world.said()["resources"]) == {"Volume/old"}

    world.run(test())


def test_a_full_disk_delays_it(world: World) -> None:
    async def test() -> None:
        await tried(world)
        world.ledger.full = True
        await asyncio.sleep(150)
        assert world.said()["generation"] == 2
        world.ledger.full = False
        await world.told("Rejected", 1)
        assert as_first(world)

    world.run(test())


def test_what_was_held_beside_the_failed_one_is_judged_again(world: World) -> None:
    async def test() -> None:
        await started(world)
        world.publish(1, *FIRST)
        await world.told("Converged", 1)
        world.publish(2, *FIRST, file("bad"), revert_after="40s")
        await world.told("Degraded", 2)
        world.publish(3, file("a", content="3"))
        await world.until(lambda: world.said().get("reason") == "PruneGuard")
        await world.told("Converged", 3)
        assert world.disk == {"/srv/a": b"3"}

    world.run(test())


@pytest.mark.parametrize("writes", range(4))
def test_cut_between_any_two_writes_it_goes_on(world: World, writes: int) -> None:
    """Killed behind so many writes of going back; the network is gone, and the clock of no use."""
    world.ledger = ledger = CutLedger()

    async def test() -> None:
        await tried(world)
        world.plane.cut()
        await asyncio.sleep(35)
        ledger.left = writes
        await asyncio.sleep(8)
        await world.stop()
        ledger.left = None
        world.boot = "another"
        await started(world)
        await world.until(lambda: reverted(world) and as_first(world), 2 * GRACE_SECONDS)
        await asyncio.sleep(1)
        assert ledger.stored["web"].generation == 1
        world.plane.mend()
        await world.told("Rejected", 1)

    world.run(test())


def test_a_removal_forgets_what_it_could_go_back_to(world: World) -> None:
    async def test() -> None:
        await tried(world)
        world.publish(3, removed=True)
        await world.told("Removed", 3)
        assert world.ledger.kept == []
        await asyncio.sleep(200)
        assert world.said()["phase"] == "Removed"
        assert world.disk == {}

    world.run(test())
