"""What a list and an inspection don't show: a stop by hand where drift is only reported, and a name
that another image has by now.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged
from harmony_agent.core.errors import Transient
from tests.fakes.containers import FakeContainers
from tests.unit.container.bench import IMAGE, Bench, web


async def planned(bench: Bench) -> Any:
    observed = await bench.kind.observe("web")
    return bench.kind.plan("web", bench.store.desired("web"), bench.store.record("web"), observed)


async def stopped_by_hand(bench: Bench) -> None:
    await bench.containers.stop(bench.containers.get("web").id, 0)
    bench.containers.calls.clear()


async def test_where_drift_is_reported_a_stop_by_hand_is_drift() -> None:
    bench = Bench()
    await bench.made(web(drift="report"))
    await stopped_by_hand(bench)
    for _ in range(2):
        plan = await planned(bench)
        assert isinstance(plan, Act)
        assert (plan.drift, plan.is_restart, plan.fields) == (True, False, ("state",))
        assert "by hand" in plan.actions[0].reason
        bench.restart_agent()


async def test_where_drift_is_reported_what_ends_by_itself_is_started() -> None:
    bench = Bench()
    await bench.made(web(drift="report"))
    bench.containers.exits("web", 1)
    plan = await planned(bench)
    assert isinstance(plan, Act)
    assert plan.is_restart


async def test_an_earlier_stop_says_nothing_of_this_end() -> None:
    bench = Bench()
    await bench.made(web(drift="report"))
    await stopped_by_hand(bench)
    await bench.containers.start(bench.containers.get("web").id)
    bench.containers.exits("web", 1)
    assert (await planned(bench)).is_restart


async def test_a_restart_of_ours_that_failed_between_its_halves_goes_on() -> None:
    bench = Bench()
    made = await bench.made(web(drift="report"))

    async def halfway(ident: str, grace: int) -> None:
        await FakeContainers.stop(bench.containers, ident, grace)
        raise Transient("Timeout", "podman did not answer")

    bench.containers.restart = halfway  # type: ignore[method-assign]
    with pytest.raises(Transient):
        await bench.kind.restart("web")
    assert made.state == "exited"
    assert (await planned(bench)).is_restart


async def test_after_a_reboot_it_runs_whoever_stopped_it_then() -> None:
    bench = Bench()
    await bench.made(web(drift="report"))
    await stopped_by_hand(bench)
    bench.reboot()
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"


async def test_where_drift_is_repaired_it_is_an_end_as_others() -> None:
    bench = Bench()
    await bench.made(web())
    await stopped_by_hand(bench)
    assert (await planned(bench)).is_restart


@pytest.mark.parametrize(("pull", "told"), [("never", True), ("missing", False)])
async def test_a_name_that_moved_is_told_and_nothing_is_done(pull: str, *, told: bool) -> None:
    bench = Bench()
    await bench.made(web(pull=pull))
    bench.containers.images[IMAGE] = bench.containers.images[IMAGE].__class__("new", None)
    plan = (await bench.once()).plan
    assert isinstance(plan, Converged)
    assert (plan.phase, plan.reason) == ("Ready", "ImageMoved" if told else "")
    assert (IMAGE in plan.message) is told
    assert bench.done() == []
    seen = (await bench.kind.relist())["web"]
    assert seen.moved is told
    bench.want(web(pull=pull, hostname="h"))
    plan = await bench.settle()
    assert isinstance(plan, Converged)
    assert plan.reason == ""
    assert bench.containers.get("web").image.id == "new"
