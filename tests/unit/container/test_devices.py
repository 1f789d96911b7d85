"""Devices of a container: resolved when it is made, waited for, followed when they are plugged in
anew, under whatever number.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.kinds.container.payload import spec_label
from harmony_agent.topology.device_nodes import DeviceNode
from scores.container import Container
from tests.unit.container.bench import IMAGE, Bench, web

STICK = "/dev/serial/by-id/usb-stick"
RADIO: dict[str, Any] = {"devices": [{"source": STICK, "target": "/dev/ttyUSB0"}]}


async def plugged(**fields: Any) -> Bench:
    """A bench whose container has the stick."""
    bench = Bench()
    bench.nodes.plug(STICK, 0, real="/dev/ttyUSB0")
    await bench.made(web(**RADIO, **fields))
    return bench


def wait(plan: Any) -> tuple[str, str]:
    assert isinstance(plan, Wait), plan
    assert STICK in plan.message
    return plan.phase, plan.reason


async def test_the_link_is_resolved_when_it_is_made() -> None:
    bench = await plugged()
    made = bench.containers.get("web")
    assert made.payload["devices"] == [{"path": "/dev/ttyUSB0:/dev/ttyUSB0:rwm"}]
    assert bench.facts()["plugs"] == {STICK: "/dev/ttyUSB0 c 188:0 1"}
    for _ in range(2):
        bench.restart_agent()
        assert await bench.settle() == Converged()
    assert bench.done() == []


async def test_one_that_was_never_there_is_waited_for_by_its_name() -> None:
    bench = Bench()
    bench.want(web(**RADIO))
    with pytest.raises(Exception, match=STICK) as caught:
        await bench.once()
    error: Any = caught.value
    assert (error.phase, error.reason) == ("Blocked", "DeviceMissing")
    assert bench.containers.named("web") is None
    bench.nodes.plug(STICK)
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"


@pytest.mark.parametrize("minor", [0, 3])
async def test_pulled_out_it_runs_on_and_is_told_and_plugged_in_again_is_taken_up(
    minor: int,
) -> None:
    """Under the same number by a restart, under another one by a new container; never as drift."""
    bench = await plugged()
    before = bench.containers.get("web")
    bench.nodes.unplug(STICK)
    assert wait(await bench.settle()) == ("Blocked", "DeviceMissing")
    assert bench.done() == []
    bench.nodes.plug(STICK, minor, real=f"/dev/ttyUSB{minor}")
    plan = bench.kind.plan(
        "web",
        bench.store.desired("web"),
        bench.store.record("web"),
        await bench.kind.observe("web"),
    )
    assert isinstance(plan, Act)
    assert (plan.drift, plan.is_restart, plan.fields) == (False, False, ())
    assert await bench.settle() == Converged()
    after = bench.containers.get("web")
    assert (after.id == before.id) is (minor == 0)
    assert (bench.done() == ["restart web"]) is (minor == 0)
    assert after.payload["devices"] == [{"path": f"/dev/ttyUSB{minor}:/dev/ttyUSB0:rwm"}]
    bench.containers.calls.clear()
    assert await bench.settle() == Converged()
    assert bench.done() == []


@pytest.mark.parametrize("minor", [0, 1])
async def test_what_ended_with_its_device_starts_with_it_and_is_not_counted(minor: int) -> None:
    bench = await plugged(restart_tries=1)
    bench.nodes.unplug(STICK)
    bench.containers.exits("web", 1)
    assert wait(await bench.settle()) == ("Blocked", "DeviceMissing")
    assert bench.done() == []
    bench.nodes.plug(STICK, minor, real="/dev/ttyUSB0")
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"
    assert (bench.facts().get("restarts", 0), bench.facts().get("tries")) == (0, None)


async def test_a_hundred_plugs_leave_one_container() -> None:
    bench = await plugged()
    for count in range(100):
        bench.nodes.unplug(STICK)
        assert wait(await bench.settle()) == ("Blocked", "DeviceMissing")
        bench.nodes.plug(STICK, count % 2, real=f"/dev/ttyUSB{count % 2}")
        assert await bench.settle() == Converged()
    assert [one.state for one in bench.containers.made.values()] == ["running"]
    assert len(bench.facts()["plugs"]) == 1


async def test_a_stopped_one_stops_without_its_device_and_a_removed_one_goes() -> None:
    bench = await plugged()
    bench.nodes.unplug(STICK)
    bench.want(web(**RADIO, state="stopped"))
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "exited"
    bench.store.unset("web")
    assert await bench.settle() == Converged()
    assert bench.containers.made == {}


async def test_a_container_that_lets_go_of_its_device_waits_for_nothing() -> None:
    bench = await plugged()
    bench.nodes.unplug(STICK)
    bench.want(web())
    assert await bench.settle() == Converged()
    assert "devices" not in bench.containers.get("web").payload


@pytest.mark.parametrize(
    ("node", "access", "reason"),
    [
        (DeviceNode(STICK), "rwm", "DeviceInvalid"),
        (DeviceNode(STICK, "c", 188, 0, 1, "dialout", ""), "rwm", "DeviceForbidden"),
        (DeviceNode(STICK, "c", 188, 0, 1, "dialout", "r"), "rw", "DeviceForbidden"),
        (DeviceNode(STICK, "c", 188, 0, 1, "dialout", "r"), "r", ""),
    ],
)
async def test_what_it_could_not_open(node: DeviceNode, access: str, reason: str) -> None:
    bench = await plugged()
    bench.nodes.nodes[STICK] = node
    bench.want(web(devices=[{"source": STICK, "access": access}]))
    plan = await bench.settle()
    if reason:
        assert wait(plan) == ("Blocked", reason)
    else:
        assert plan == Converged()


async def test_a_change_at_a_node_is_told_to_those_that_have_it() -> None:
    bench = await plugged()
    other = Container(name="other", image=IMAGE)
    await bench.made(other)
    heard: asyncio.Queue[str] = asyncio.Queue()
    watch = asyncio.create_task(bench.kind.watch(heard.put_nowait))
    while not bench.containers.events_queue.empty():
        await asyncio.sleep(0)
    while not heard.empty():
        heard.get_nowait()
    bench.nodes.unplug(STICK)
    assert await asyncio.wait_for(heard.get(), 5) == "web"
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    assert "other" not in [heard.get_nowait() for _ in range(heard.qsize())]


async def test_the_relist_follows_the_nodes_that_are_wanted() -> None:
    bench = await plugged()
    assert (await bench.kind.relist())["web"].nodes[STICK] is not None
    assert bench.nodes.followed == (STICK,)
    bench.store.unset("web")
    await bench.kind.relist()
    assert bench.nodes.followed == ()


def test_the_label_tells_one_number_from_the_next_and_no_plug() -> None:
    spec = web(**RADIO)
    first = {STICK: DeviceNode("/dev/ttyUSB0", "c", 188, 0, 1)}
    again = {STICK: DeviceNode("/dev/ttyUSB0", "c", 188, 0, 2)}
    other = {STICK: DeviceNode("/dev/ttyUSB1", "c", 188, 1, 3)}
    assert spec_label(spec, {}, first) == spec_label(spec, {}, again)
    assert spec_label(spec, {}, first) != spec_label(spec, {}, other)


async def test_groups_are_kept_where_the_runtime_can() -> None:
    bench = Bench()
    await bench.made(web(groups=["keep-groups"]))
    bench.containers.runtime = "runc"
    bench.restart_agent()
    assert await bench.settle() == Converged()
    bench.want(web(groups=["keep-groups"], hostname="h"))
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.phase, plan.reason) == ("Blocked", "KeepGroupsUnsupported")
    assert "crun" in plan.message
    bench.want(web(groups=["20"], hostname="h"))
    assert await bench.settle() == Converged()
