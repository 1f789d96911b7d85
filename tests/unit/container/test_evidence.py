"""What a list and an inspection don't show: a stop by hand where drift is only reported, and a name
that another image has by now.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Wait
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


async def ended(*, stopped: bool, **more: Any) -> Bench:
    """A container that has ended, with a podman that shows only in its events who did it."""
    bench = Bench()
    bench.containers.shows_stops = False
    await bench.made(web(drift="report", **more))
    if stopped:
        await stopped_by_hand(bench)
    else:
        bench.containers.exits("web", 137)
    return bench


async def test_by_its_events_a_stop_by_hand_is_drift_at_once() -> None:
    bench = await ended(stopped=True)
    for _ in range(2):
        plan = await planned(bench)
        assert (plan.drift, plan.is_restart, plan.fields) == (True, False, ("state",))
        assert "by hand" in plan.actions[0].reason
    bench.restart_agent()
    assert (await planned(bench)).fields == ("state",)


async def test_by_its_events_an_end_by_itself_is_started_once_that_is_sure() -> None:
    bench = await ended(stopped=False)
    assert isinstance(plan := await planned(bench), Wait)
    assert (plan.reason, plan.phase, plan.seconds) == ("JustEnded", "Degraded", 1.0)
    bench.containers.now += timedelta(seconds=5)
    assert (await planned(bench)).is_restart
    assert await bench.settle() == Converged()
    assert bench.containers.get("web").state == "running"


async def test_a_stop_that_shows_late_is_still_drift() -> None:
    bench = await ended(stopped=False)
    bench.containers.now = bench.containers.get("web").finished or bench.containers.now
    assert isinstance(await planned(bench), Wait)
    bench.containers.get("web").stopped = True
    assert not (await planned(bench)).is_restart


@pytest.mark.parametrize("how", ["lost", "refused"])
async def test_an_end_that_nothing_explains_is_reported(how: str) -> None:
    bench = await ended(stopped=False)
    bench.containers.now += timedelta(minutes=1)
    if how == "lost":
        bench.containers.keeps_events = False
    else:
        bench.containers.refuse("events")
    plan = await planned(bench)
    assert (plan.drift, plan.is_restart, plan.fields) == (True, False, ("state",))
    assert "doesn't tell" in plan.actions[0].reason


async def test_a_run_is_asked_about_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, asked = await ended(stopped=True), []
    answer = bench.containers.was_stopped

    async def counted(state: Any) -> bool | None:
        asked.append(state.run)
        return await answer(state)

    monkeypatch.setattr(bench.containers, "was_stopped", counted)
    for _ in range(3):
        await planned(bench)
        await bench.kind.relist()
    assert len(asked) == 1
    await bench.containers.start(bench.containers.get("web").id)
    await stopped_by_hand(bench)
    await planned(bench)
    assert len(set(asked)) == 2


@pytest.mark.parametrize(
    "more", [{"restart": "never"}, {"restart": "on-failure"}, {"drift": "enforce"}]
)
async def test_nobody_is_asked_where_it_changes_nothing(more: dict[str, Any]) -> None:
    bench = Bench()
    bench.containers.shows_stops = False
    await bench.made(web(**{"drift": "report", **more}))
    bench.containers.exits("web", 0)
    bench.containers.refuse("events")
    await planned(bench)
    assert (await bench.kind.relist())["web"].end == ""


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
