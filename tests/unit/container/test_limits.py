"""Limits for which the kernel has no cgroup controller."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Wait
from harmony_agent.kinds.container.limits import needed, remedy
from tests.unit.container.bench import Bench, web


@pytest.mark.parametrize(
    ("fields", "controllers"),
    [
        ({}, []),
        ({"memory": "64Mi"}, ["memory"]),
        ({"memory": "64Mi", "cpus": 0.5, "pids": 20}, ["memory", "cpu", "pids"]),
        ({"memory": "64Mi", "state": "stopped"}, []),
    ],
)
def test_what_a_spec_needs_in_order_to_run(fields: dict[str, Any], controllers: list[str]) -> None:
    assert needed(web(**fields)) == controllers


def test_the_remedy_names_the_line_of_the_raspberry_pi() -> None:
    assert "cgroup_enable=memory cgroup_memory=1" in remedy(["memory"])
    assert "Delegate=yes" not in remedy(["memory"])
    assert remedy(["cpu", "memory"]).count(";") == 1
    assert "for cpu and pids" in remedy(["cpu", "pids"])
    assert remedy([]) == ""


async def test_blocked_by_its_name_and_what_runs_goes_on() -> None:
    bench = Bench()
    bench.containers.controllers_here = frozenset({"cpu", "pids"})
    before = await bench.made(web(cpus=1, pids=50))
    bench.want(web(memory="64Mi"))
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert (plan.reason, plan.phase) == ("ControllerMissing", "Blocked")
    assert "cannot limit memory of web" in plan.message
    assert (bench.done(), before.state) == ([], "running")
    bench.containers.controllers_here = frozenset({"cpu", "memory", "pids"})
    bench.containers.now += timedelta(minutes=2)
    assert await bench.settle() == Converged()
    assert bench.containers.get("web") is not before


async def test_nothing_is_made_that_could_not_be_started() -> None:
    bench = Bench()
    bench.containers.controllers_here = frozenset()
    bench.want(web(memory="64Mi"))
    assert isinstance(await bench.settle(), Wait)
    assert bench.containers.named("web") is None
    bench.want(web(memory="64Mi", state="stopped"))
    assert await bench.settle() == Converged()


async def test_a_device_that_cannot_tell_leaves_it_to_podman() -> None:
    bench = Bench()
    bench.containers.controllers_here = None
    await bench.made(web(memory="64Mi"))
    assert await bench.kind.missing_controllers() == []


async def test_what_runs_as_wanted_is_not_blocked() -> None:
    bench = Bench()
    await bench.made(web(memory="64Mi"))
    bench.containers.controllers_here = frozenset()
    bench.restart_agent()
    assert await bench.settle() == Converged()
    assert await bench.kind.missing_controllers() == ["cpu", "memory", "pids"]
