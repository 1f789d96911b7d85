"""Whole passes over a fake engine: a volume is made, kept, and removed with its data only where the
Score says so, and only if it was made for it.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.volume import VolumeReconciler
from harmony_agent.topology.volumes import VolumeState
from scores.volume import Volume
from tests.fakes.drive import Cut, run
from tests.fakes.engine_objects import FakeVolumes
from tests.fakes.store import FakeStore

OURS = {"io.harmony.device": "pi-01", "io.harmony.resource": "Volume/data"}


class Bench:
    """A device with a fake engine, and an agent that can be restarted."""

    def __init__(self) -> None:
        self.volumes, self.store = FakeVolumes(), FakeStore("Volume")
        self.restart_agent()

    def restart_agent(self) -> None:
        self.kind = VolumeReconciler(self.volumes, self.store, device="pi-01")

    def want(self, **fields: Any) -> None:
        self.store.set_desired(Volume(name="data", **fields))

    async def settle(self, **fields: Any) -> Plan[Any]:
        for _ in range(3):
            result = await run(self.kind, self.store, "data", **fields)
            if isinstance(result.plan, Converged | Wait):
                return result.plan
        raise AssertionError(result)

    async def made(self, **fields: Any) -> VolumeState:
        self.want(**fields)
        assert await self.settle() == Converged()
        self.volumes.calls.clear()
        return self.volumes.made["data"]


async def test_made_once_with_its_labels_and_then_left_alone() -> None:
    bench = Bench()
    made = await bench.made(driver="local", labels={"team": "x"})
    assert made.labels == {"team": "x", **OURS}
    for _ in range(2):
        bench.restart_agent()
        assert await bench.settle() == Converged()
    assert bench.volumes.calls == []
    detail = bench.kind.detail(bench.store.record("data"), made)
    assert (detail.state, detail.driver, detail.since) == (
        "Present",
        "local",
        "2026-11-29T17:00:00.000Z",
    )
    assert bench.kind.detail(None, None).state == "Absent"


@pytest.mark.parametrize("before", ["delete", "orphan", "delete-data"])
@pytest.mark.parametrize("on_remove", ["delete", "orphan", "delete-data"])
async def test_its_data_goes_only_where_the_score_says_so_last(before: str, on_remove: str) -> None:
    bench = Bench()
    await bench.made(on_remove=before)
    await bench.made(on_remove=on_remove)
    bench.store.claim("data")
    bench.store.unset("data")
    assert await bench.settle() == Converged()
    assert bench.store.record("data") is None
    assert ("data" in bench.volumes.made) is (on_remove != "delete-data")


async def test_while_a_container_has_it_its_data_stays() -> None:
    bench = Bench()
    await bench.made(on_remove="delete-data")
    bench.volumes.used.add("data")
    bench.store.unset("data")
    with pytest.raises(Transient) as caught:
        await bench.settle()
    assert (caught.value.reason, caught.value.phase) == ("VolumeInUse", "Blocked")
    bench.volumes.used.clear()
    assert await bench.settle() == Converged()
    assert bench.volumes.made == {}


@pytest.mark.parametrize("labels", [{}, {"team": "x"}, OURS])
async def test_one_that_was_there_is_taken_as_it_is_and_outlives_us(labels: dict[str, str]) -> None:
    """Also one with our labels: somebody let go of it, and its data is theirs."""
    bench = Bench()
    bench.volumes.made["data"] = before = VolumeState("data", "local", labels)
    wanted = {key: value for key, value in labels.items() if key not in OURS}
    await bench.made(labels=wanted, on_remove="delete-data")
    bench.store.unset("data")
    assert await bench.settle() == Converged()
    assert bench.volumes.made == {"data": before}
    assert bench.volumes.calls == []


@pytest.mark.parametrize(
    ("fields", "word"),
    [({"driver": "image"}, "driver"), ({"labels": {"team": "y"}}, "labels")],
)
async def test_what_differs_is_told_and_no_data_touched(fields: dict[str, Any], word: str) -> None:
    bench = Bench()
    bench.volumes.made["data"] = VolumeState("data", "local", {"team": "x"})
    bench.want(**{"labels": {"team": "x"}, **fields})
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason, word in plan.message) == ("Blocked", "OwnershipConflict", True)
    bench = Bench()
    await bench.made(labels={"team": "x"})
    bench.want(**{"labels": {"team": "x"}, **fields})
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason, word in plan.message) == ("Blocked", "VolumeDiffers", True)
    assert bench.volumes.calls == []
    await bench.made(labels={"team": "x"})


async def test_one_that_was_lost_is_made_anew_as_drift() -> None:
    bench = Bench()
    await bench.made()
    del bench.volumes.made["data"]
    result = await run(bench.kind, bench.store, "data")
    assert (result.fields, bench.volumes.calls) == (["name"], ["create data"])


@pytest.mark.parametrize("after", [False, True])
async def test_an_agent_that_is_killed_in_the_creation_makes_one(after: bool) -> None:
    bench = Bench()
    bench.want(on_remove="delete-data")
    create = bench.volumes.create

    async def die(name: str, driver: str, labels: Any) -> None:
        if after:
            await create(name, driver, labels)
        raise Cut

    bench.volumes.create = die  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.settle()
    bench.volumes.create = create  # type: ignore[method-assign]
    bench.restart_agent()
    assert await bench.settle() == Converged()
    assert list(bench.volumes.made) == ["data"]
    bench.store.unset("data")
    assert await bench.settle() == Converged()
    assert bench.volumes.made == {}


@pytest.mark.parametrize(
    ("operation", "reason", "phase"),
    [("list", "InspectFailed", "Unknown"), ("create", "CreateFailed", "Degraded")],
)
async def test_what_podman_refuses_is_told(operation: str, reason: str, phase: str) -> None:
    bench = Bench()
    bench.want()
    bench.volumes.refuse(operation, "no space")
    with pytest.raises(Transient) as caught:
        await bench.settle()
    assert (caught.value.reason, caught.value.phase) == (reason, phase)
    assert await bench.settle() == Converged()


async def test_a_removal_that_podman_refuses_is_told_and_tried_again() -> None:
    bench = Bench()
    await bench.made(on_remove="delete-data")
    bench.store.unset("data")
    bench.volumes.refuse("remove", "no")
    with pytest.raises(Transient, match="cannot remove the volume data: no") as caught:
        await bench.settle()
    assert caught.value.reason == "RemoveFailed"
    assert await bench.settle() == Converged()
    assert bench.volumes.made == {}


async def test_a_relist_shows_what_is_wanted_and_asks_only_then() -> None:
    bench = Bench()
    bench.volumes.made["theirs"] = VolumeState("theirs")
    bench.volumes.refuse("list")
    assert await bench.kind.relist() == {}
    bench.volumes._refusals.clear()
    made = await bench.made()
    assert await bench.kind.relist() == {"data": made}
    assert bench.kind.claims(Volume(name="data")) == {"volume:data"}
    assert list(bench.kind.admit(Volume(name="data"))) == []
    await bench.kind.close()
    assert bench.volumes.closed
