"""Whole passes over a fake engine: a network is made, made anew where it differs and is free, and
removed if it was made for its Score.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.network import NetworkReconciler
from harmony_agent.topology.networks import NetworkState
from scores.manifest import FieldError
from scores.network import Network
from tests.fakes.drive import Cut, run
from tests.fakes.engine_objects import FakeNetworks
from tests.fakes.store import FakeStore

OURS = {"io.harmony.device": "pi-01", "io.harmony.resource": "Network/home"}
SUBNET = {"subnet": "10.89.5.0/24"}


class Bench:
    """A device with a fake engine, and an agent that can be restarted."""

    def __init__(self) -> None:
        self.networks, self.store = FakeNetworks(), FakeStore("Network")
        self.restart_agent()

    def restart_agent(self) -> None:
        self.kind = NetworkReconciler(self.networks, self.store, device="pi-01")

    def want(self, **fields: Any) -> None:
        self.store.set_desired(Network(name="home", **fields))

    async def settle(self) -> Plan[Any]:
        for _ in range(3):
            result = await run(self.kind, self.store, "home")
            if isinstance(result.plan, Converged | Wait):
                return result.plan
        raise AssertionError(result)

    async def made(self, **fields: Any) -> NetworkState:
        self.want(**fields)
        assert await self.settle() == Converged()
        return self.networks.made["home"]

    async def refused(self) -> Transient:
        with pytest.raises(Transient) as caught:
            await self.settle()
        return caught.value


async def test_made_once_and_then_left_alone() -> None:
    bench = Bench()
    made = await bench.made(**SUBNET, internal=True, labels={"team": "x"})
    assert (made.labels, made.internal) == ({"team": "x", **OURS}, True)
    for _ in range(2):
        bench.restart_agent()
        assert await bench.settle() == Converged()
    assert bench.networks.calls == ["create home"]
    detail = bench.kind.detail(bench.store.record("home"), made)
    assert (detail.state, detail.driver, list(detail.subnets)) == (
        "Present",
        "bridge",
        ["10.89.5.0/24"],
    )
    assert bench.kind.detail(None, None).state == "Absent"


CHANGES: list[dict[str, Any]] = [
    {"subnet": "10.89.6.0/24"},
    {**SUBNET, "gateway": "10.89.5.9"},
    {**SUBNET, "internal": True},
    {**SUBNET, "driver": "macvlan"},
    {**SUBNET, "labels": {"team": "y"}},
    {**SUBNET, "dns": False},
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_makes_it_anew_while_no_container_is_in_it(change: dict[str, Any]) -> None:
    bench = Bench()
    before = await bench.made(**SUBNET)
    bench.networks.calls.clear()
    bench.networks.used.add("home")
    bench.want(**change)
    error = await bench.refused()
    assert (error.reason, error.phase) == ("NetworkInUse", "Blocked")
    assert bench.networks.made["home"] == before
    bench.networks.used.clear()
    after = await bench.made(**change)
    assert after != before
    assert bench.networks.calls[-2:] == ["remove home", "create home"]
    bench.networks.calls.clear()
    assert await bench.settle() == Converged()
    assert bench.networks.calls == []


@pytest.mark.parametrize("change", CHANGES)
async def test_one_that_isnt_ours_is_left_alone(change: dict[str, Any]) -> None:
    bench = Bench()
    pair = ("10.89.5.0/24", "10.89.5.1")
    bench.networks.made["home"] = NetworkState("home", "1", "bridge", (pair,), False, {"a": "b"})
    bench.want(**change)
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason) == ("Blocked", "OwnershipConflict")
    assert bench.networks.calls == []


async def test_one_that_is_as_wanted_is_taken_and_outlives_us() -> None:
    bench = Bench()
    pair = ("10.89.5.0/24", "10.89.5.1")
    bench.networks.made["home"] = before = NetworkState("home", "1", "bridge", (pair,))
    await bench.made(**SUBNET)
    bench.store.unset("home")
    assert await bench.settle() == Converged()
    assert bench.networks.made == {"home": before}
    assert bench.networks.calls == []


async def test_what_podman_chose_and_how_it_spells_it_is_no_drift() -> None:
    bench = Bench()
    await bench.made()
    pair = ("fd00:0001::/64", "fd00:1::0001")
    bench.networks.made["home"] = NetworkState("home", "1", "bridge", (pair,), False, OURS)
    assert await bench.settle() == Converged()
    bench.want(subnet="fd00:1::/64", gateway="fd00:1::1")
    assert await bench.settle() == Converged()
    assert bench.networks.calls == ["create home"]


async def test_removed_once_it_is_free() -> None:
    bench = Bench()
    await bench.made()
    bench.networks.used.add("home")
    bench.store.unset("home")
    assert (await bench.refused()).reason == "NetworkInUse"
    bench.networks.used.clear()
    assert await bench.settle() == Converged()
    assert bench.networks.made == {}


async def test_one_that_was_lost_is_made_anew_as_drift() -> None:
    bench = Bench()
    await bench.made()
    del bench.networks.made["home"]
    result = await run(bench.kind, bench.store, "home")
    assert result.fields == ["name"]
    assert "home" in bench.networks.made


async def test_an_agent_that_is_killed_in_the_creation_makes_one() -> None:
    bench = Bench()
    bench.want()
    create = bench.networks.create

    async def die(spec: Any) -> None:
        await create(spec)
        raise Cut

    bench.networks.create = die  # type: ignore[method-assign]
    with pytest.raises(Cut):
        await bench.settle()
    bench.networks.create = create  # type: ignore[method-assign]
    bench.restart_agent()
    assert await bench.settle() == Converged()
    bench.store.unset("home")
    assert await bench.settle() == Converged()
    assert bench.networks.made == {}


@pytest.mark.parametrize(
    ("operation", "reason", "phase"),
    [("list", "InspectFailed", "Unknown"), ("create", "CreateFailed", "Degraded")],
)
async def test_what_podman_refuses_is_told(operation: str, reason: str, phase: str) -> None:
    bench = Bench()
    bench.want()
    bench.networks.refuse(operation, "subnet 10.0.0.0/8 is already used on the host")
    error = await bench.refused()
    assert (error.reason, error.phase) == (reason, phase)
    assert await bench.settle() == Converged()
    bench.store.unset("home")
    bench.networks.refuse("remove", "no")
    assert (await bench.refused()).reason == "RemoveFailed"
    assert await bench.settle() == Converged()


async def test_a_relist_shows_what_is_wanted_and_asks_only_then() -> None:
    bench = Bench()
    bench.networks.made["podman"] = NetworkState("podman")
    bench.networks.refuse("list")
    assert await bench.kind.relist() == {}
    bench.networks._refusals.clear()
    made = await bench.made()
    assert await bench.kind.relist() == {"home": made}
    assert bench.kind.claims(Network(name="home")) == {"network:home"}
    assert list(bench.kind.admit(Network(name="home"))) == []
    of_the_device = Network(name="home", driver="macvlan", subnet="192.0.2.0/24")
    refused = FieldError("driver", "RootlessUnsupported")
    assert list(bench.kind.admit(of_the_device)) == [refused]
    rootful = NetworkReconciler(bench.networks, bench.store, device="pi-01", rootless=False)
    assert list(rootful.admit(of_the_device)) == []
    await bench.kind.close()
    assert bench.networks.closed
