"""A device keeps what it accepted before a rule came, over restarts and a lost memory; nothing new
may break the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Plan
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.engine.state.kind_view import DeviceStateView
from harmony_agent.topology.control_plane import StoredManifest
from scores.canonical import canonical
from scores.container import Container
from scores.keys import DESIRED
from scores.manifest import FieldError
from scores.signatures import content_digest
from tests.fakes.memory_kind import MemoryFiles
from tests.unit.engine.world import DEVICE, LINEAGE, World

TINY = {"kind": "Container", "name": "web", "image": "busybox", "memory": 64}
OLD = {
    "api": "harmony/v1",
    "device": DEVICE,
    "deployment": "web",
    "lineage": LINEAGE,
    "generation": 3,
    "scores": [TINY],
}


class Fine(MemoryFiles):
    """Containers that are always as wanted."""

    kind = "Container"
    spec_type = Container  # type: ignore[assignment]

    def admit(self, spec: Any) -> Iterable[FieldError]:
        return ()

    def claims(self, spec: Any) -> frozenset[str]:
        return frozenset()

    async def relist(self) -> Mapping[str, bytes]:
        return {}

    async def observe(self, name: str) -> bytes | None:
        return b""

    def plan(
        self,
        name: str,
        desired: Desired[Any] | None,
        record: OwnershipRecord | None,
        observed: bytes | None,
    ) -> Plan[Any]:
        return Converged()

    def facts(self, desired: Any, record: OwnershipRecord | None, observed: bytes | None) -> Facts:
        return {}

    def detail(self, record: OwnershipRecord | None, observed: Any) -> None:
        return None


@pytest.fixture
def world() -> World:
    """A device whose earlier agent accepted what an agent of now refuses."""
    made = World(lambda book: {"Container": Fine(DeviceStateView(book, "Container"))})
    data, digest = canonical(OLD), content_digest(OLD)
    made.ledger.stored["web"] = StoredManifest("web", LINEAGE, 3, digest, data, {})
    return made


async def _old_is_enforced(world: World) -> None:
    await world.start()
    world.plane.set(DESIRED, f"{DEVICE}.web", canonical(OLD))
    await world.told("Converged", 3)


def test_what_stands_is_kept_and_nothing_new_is_taken(world: World) -> None:
    async def test() -> None:
        await _old_is_enforced(world)
        world.publish(4, {**TINY, "name": "other"})
        await world.told("Rejected", 3)
        rejected = world.said()["rejected"]
        assert rejected["errors"] == [{"field": "scores[0].memory", "code": "OutOfRange"}]
        world.publish(4, {**TINY, "memory": "64Mi"})
        await world.told("Converged", 4)

    world.run(test())


def test_it_is_kept_over_a_restart(world: World) -> None:
    async def test() -> None:
        await _old_is_enforced(world)
        await world.stop()
        await world.start()
        await world.told("Converged", 3)
        assert world.said()["rejected"] is None

    world.run(test())


def test_a_device_that_lost_its_memory_takes_it_back(world: World) -> None:
    async def test() -> None:
        await _old_is_enforced(world)
        await world.stop()
        world.ledger.stored.clear()
        world.ledger.owned.clear()
        await world.start()
        await world.until(lambda: "web" in world.ledger.stored)
        assert world.said()["rejected"] is None

    world.run(test())


def test_the_same_generation_with_other_content_is_read_as_new(world: World) -> None:
    async def test() -> None:
        await _old_is_enforced(world)
        world.publish(3, {**TINY, "memory": 65})
        await world.told("Rejected", 3)

    world.run(test())
