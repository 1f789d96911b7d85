"""A container on a schedule: runs at its times, missed ones, ends, reboots, a clock that jumps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harmony_agent.core.actions import Converged, Wait
from scores.container import Container
from tests.fakes.drive import Cut
from tests.unit.container.bench import Bench, web

THREE = datetime(2026, 11, 30, 3, tzinfo=UTC)
DAY = timedelta(days=1)
NIGHTLY = "0 3 * * *"


def job(**fields: Any) -> Container:
    return web(schedule=NIGHTLY, **fields)


class Nights(Bench):
    """A bench with a job; the clock is set by the test."""

    async def ready(self, spec: Container | None = None) -> Converged:
        """Want it, and settle it at five in the afternoon."""
        await self.made(spec or job())
        return await self.look()

    async def look(self) -> Any:
        plan = await self.settle()
        assert isinstance(plan, (Converged, Wait))
        return plan

    async def at(self, moment: datetime) -> Any:
        self.containers.now = moment
        return await self.look()

    def state(self) -> str:
        return self.containers.get("web").state

    async def ends(self, code: int = 0) -> Any:
        self.containers.exits("web", code)
        return await self.look()

    def shown(self) -> dict[str, Any]:
        record = self.store.record("web")
        observed = self.last
        detail = self.kind.detail(record, observed)
        assert detail is not None
        return detail.wire()

    async def detail(self) -> dict[str, Any]:
        self.last = await self.kind.observe("web")
        return self.shown()


def told(plan: Any) -> tuple[str, str]:
    return plan.phase, plan.reason


async def test_it_is_made_and_waits_for_its_time() -> None:
    bench = Nights()
    plan = await bench.ready()
    assert plan == Converged("Ready", again=THREE.timestamp())
    assert bench.state() == "created"
    assert await bench.at(THREE - timedelta(seconds=1)) == plan
    assert (bench.done(), bench.store.noted) == ([], [])
    assert (await bench.detail())["schedule"] == {
        "next": "2026-11-30T03:00:00.000Z",
        "missed": 0,
        "missed_at": None,
    }


async def test_it_runs_once_at_its_time_and_its_end_is_told() -> None:
    bench = Nights()
    await bench.ready()
    plan = await bench.at(THREE)
    assert (told(plan), bench.state()) == (("Ready", ""), "running")
    assert plan.again == (THREE + DAY).timestamp()
    assert told(await bench.ends()) == ("Ready", "")
    assert bench.done() == ["start web"]
    for again in (bench.restart_agent, lambda: None):
        again()
        await bench.look()
    assert bench.done() == ["start web"]
    shown = await bench.detail()
    assert shown["last_run"] == {
        "result": "Exited",
        "due": "2026-11-30T03:00:00.000Z",
        "started": "2026-11-30T03:00:01.000Z",
        "ended": "2026-11-30T03:00:02.000Z",
        "exit_code": 0,
    }
    await bench.at(THREE + DAY)
    assert bench.state() == "running"


async def test_a_failed_run_is_degraded_until_one_ends_well() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    plan = await bench.ends(3)
    assert told(plan) == ("Degraded", "JobFailed")
    assert "ended with 3" in plan.message
    assert "next at 2026-12-01T03:00:00.000Z" in plan.message
    bench.reboot()
    assert told(await bench.look()) == ("Degraded", "JobFailed")
    assert told(await bench.at(THREE + DAY)) == ("Degraded", "JobFailed")
    assert told(await bench.ends()) == ("Ready", "")


async def test_a_time_at_which_nobody_was_there_is_missed_and_named() -> None:
    bench = Nights()
    await bench.ready()
    plan = await bench.at(THREE + DAY + timedelta(hours=4))
    assert told(plan) == ("Ready", "RunMissed")
    assert "its run of 2026-12-01T03:00:00.000Z was missed (2 so far)" in plan.message
    assert bench.done() == []
    await bench.at(THREE + 2 * DAY)
    assert told(await bench.ends()) == ("Ready", "")
    assert (await bench.detail())["schedule"]["missed"] == 2


async def test_what_was_missed_is_made_up_for_once_where_the_score_says_so() -> None:
    bench = Nights()
    await bench.ready(job(run_missed=True))
    await bench.at(THREE + DAY + timedelta(hours=4))
    assert bench.state() == "running"
    assert told(await bench.ends()) == ("Ready", "")
    assert bench.done() == ["start web"]
    shown = await bench.detail()
    assert shown["last_run"]["due"] == "2026-12-01T03:00:00.000Z"
    assert shown["schedule"]["missed"] == 0


@pytest.mark.parametrize("run_missed", [False, True])
async def test_runs_do_not_overlap(run_missed: bool) -> None:
    bench = Nights()
    await bench.ready(job(run_missed=run_missed))
    await bench.at(THREE)
    plan = await bench.at(THREE + DAY)
    assert bench.done() == ["start web"]
    assert told(plan) == ("Ready", "RunMissed")
    assert told(await bench.ends()) == ("Ready", "RunMissed")
    assert bench.done() == ["start web"]
    await bench.at(THREE + 2 * DAY)
    assert bench.state() == "running"


@pytest.mark.parametrize("power_cut", [False, True])
async def test_a_run_that_the_device_went_down_in_is_told_and_not_begun_again(
    power_cut: bool,
) -> None:
    bench = Nights()
    await bench.ready(job(run_missed=True))
    await bench.at(THREE)
    bench.reboot(power_cut=power_cut)
    plan = await bench.look()
    assert told(plan) == ("Degraded", "RunCut")
    assert "2026-11-30T03:00:00.000Z was cut" in plan.message
    assert bench.done() == ["start web"]
    assert (await bench.detail())["last_run"]["result"] == "Cut"
    await bench.at(THREE + DAY)
    assert told(await bench.ends()) == ("Ready", "")


async def test_podman_4_shows_what_a_reboot_ended_as_created() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    made = bench.containers.get("web")
    bench.reboot(power_cut=True)
    made.state, made.started, made.finished = "created", None, None
    assert told(await bench.look()) == ("Degraded", "RunCut")


async def test_an_agent_that_died_before_the_start_begins_it_within_a_minute() -> None:
    for late, expected in ((30, ("Ready", "")), (90, ("Degraded", "JobFailed"))):
        bench = Nights()
        await bench.ready()
        bench.containers.now = THREE

        async def die(_ident: str) -> None:
            raise Cut

        start, bench.containers.start = bench.containers.start, die  # type: ignore[method-assign]
        with pytest.raises(Cut):
            await bench.once()
        bench.containers.start = start  # type: ignore[method-assign]
        bench.restart_agent()
        assert told(await bench.at(THREE + timedelta(seconds=late))) == expected
        assert bench.state() == ("running" if late == 30 else "created")


async def test_a_run_that_podman_does_not_start_is_told() -> None:
    bench = Nights()
    await bench.ready(job(command=["nothing"]))
    bench.containers.missing_commands.add("nothing")
    bench.containers.now = THREE
    with pytest.raises(Exception, match="cannot start web"):
        await bench.once()
    plan = await bench.at(THREE + timedelta(seconds=61))
    assert told(plan) == ("Degraded", "JobFailed")
    assert "couldn't be started" in plan.message


async def test_a_clock_that_is_set_forward_over_a_time_misses_it() -> None:
    bench = Nights()
    await bench.ready()
    assert told(await bench.at(THREE + timedelta(hours=9))) == ("Ready", "RunMissed")


async def test_a_clock_that_is_set_back_a_little_begins_nothing_twice() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    await bench.ends()
    await bench.at(THREE - timedelta(minutes=20))
    await bench.at(THREE)
    assert bench.done() == ["start web"]


async def test_a_clock_that_was_far_ahead_begins_anew() -> None:
    bench = Nights()
    bench.containers.now = THREE + 4000 * DAY
    await bench.ready()
    plan = await bench.at(THREE - timedelta(hours=1))
    assert plan == Converged("Ready", again=THREE.timestamp())
    await bench.at(THREE)
    assert bench.state() == "running"


async def test_the_times_are_in_its_time_zone() -> None:
    bench = Nights()
    plan = await bench.ready(job(timezone="Asia/Tokyo"))
    assert plan.again == datetime(2026, 11, 29, 18, tzinfo=UTC).timestamp()


async def test_a_time_zone_that_the_device_does_not_have() -> None:
    bench = Nights()
    bench.want(job(timezone="Mars/Olympus"))
    plan = await bench.settle()
    assert isinstance(plan, Wait)
    assert told(plan) == ("Blocked", "TimezoneMissing")


async def test_another_schedule_misses_nothing_of_before() -> None:
    bench = Nights()
    await bench.ready()
    bench.want(web(schedule="0 16 * * *"))
    plan = await bench.look()
    assert plan == Converged("Ready", again=datetime(2026, 11, 30, 16, tzinfo=UTC).timestamp())
    assert bench.done() == []


async def test_a_run_under_way_ends_before_its_container_is_made_anew() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    run = bench.containers.get("web").id
    bench.want(job(hostname="h"))
    assert told(await bench.look()) == ("Progressing", "RunUnderWay")
    assert bench.containers.get("web").id == run
    assert told(await bench.ends()) == ("Ready", "")
    assert bench.containers.get("web").id != run
    assert [one.name for one in bench.containers.made.values()] == ["web"]


async def test_a_service_that_becomes_a_job_is_made_anew_and_the_other_way_round() -> None:
    bench = Nights()
    await bench.made(web())
    bench.want(job())
    assert told(await bench.look()) == ("Ready", "")
    assert bench.state() == "created"
    bench.want(web())
    await bench.look()
    assert bench.state() == "running"
    assert "schedule" not in await bench.detail()


async def test_stopped_it_runs_at_no_time_and_a_run_under_way_is_ended() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    bench.want(job(state="stopped"))
    assert await bench.look() == Converged()
    assert bench.state() == "exited"
    await bench.at(THREE + DAY)
    bench.want(job())
    assert told(await bench.look())[0] == "Ready"
    assert bench.done() == ["start web", "stop web"]


async def test_a_run_by_hand_is_left_to_its_end_and_told() -> None:
    bench = Nights()
    await bench.ready()
    await bench.containers.start(bench.containers.get("web").id)
    bench.containers.calls.clear()
    assert told(await bench.look()) == ("Ready", "")
    assert told(await bench.ends(2)) == ("Degraded", "JobFailed")
    assert bench.done() == []


async def test_a_removed_container_is_made_again_and_its_run_told_as_cut() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    await bench.containers.remove(bench.containers.get("web").id)
    assert told(await bench.look()) == ("Degraded", "RunCut")
    assert bench.state() == "created"


async def test_a_paused_run_goes_on() -> None:
    bench = Nights()
    await bench.ready()
    await bench.at(THREE)
    bench.containers.get("web").state = "paused"
    await bench.look()
    assert bench.state() == "running"
    bench.containers.get("web").state = "paused"
    bench.want(job(hostname="h"))
    assert told(await bench.look()) == ("Progressing", "RunUnderWay")


@pytest.mark.parametrize("at", range(6))
async def test_killed_anywhere_it_begins_each_time_once(at: int) -> None:
    """At three, killed ahead of each step in turn, then at work again."""
    bench = Nights()
    await bench.ready()
    left = at

    def count(_action: Any) -> None:
        nonlocal left
        left -= 1
        if left == -1:
            raise Cut

    bench.containers.now = THREE
    try:
        for _ in range(3):
            await bench.once(before=count)
    except Cut:
        bench.restart_agent()
    await bench.look()
    assert bench.state() == "running"
    await bench.ends()
    assert bench.done() == ["start web"]


async def test_a_relist_sees_that_a_time_has_come() -> None:
    """As where the clock was set, and no wake-up fits any more."""
    bench = Nights()
    await bench.ready()
    before = await bench.kind.relist()
    assert await bench.kind.relist() == before
    bench.containers.now = THREE
    assert await bench.kind.relist() != before


async def test_a_resting_job_is_not_calculated_at_each_look(monkeypatch: Any) -> None:
    bench = Nights()
    await bench.ready()
    await bench.kind.relist()
    monkeypatch.setattr("harmony_agent.kinds.container.turns.turn", None)
    for _ in range(3):
        bench.containers.now += timedelta(seconds=10)
        await bench.kind.relist()


async def test_what_ran_once_for_its_spec_keeps_its_result() -> None:
    bench = Nights()
    await bench.made(web(restart="never"))
    assert told(await bench.ends()) == ("Completed", "")
    await bench.containers.remove(bench.containers.get("web").id)
    await bench.look()
    shown = await bench.detail()
    assert (shown["state"], shown["last_run"]["result"]) == ("Absent", "Exited")
    assert shown["last_run"]["ended"]
    assert "schedule" not in shown


async def test_another_spec_before_a_start_that_was_cut_begins_no_run_of_the_old_one() -> None:
    bench = Nights()
    await bench.ready()
    bench.containers.now = THREE

    def die(action: Any) -> None:
        bench.containers.refuse("start")

    with pytest.raises(Exception, match="cannot start web"):
        await bench.once(before=die)
    bench.want(job(hostname="h"))
    assert told(await bench.look()) == ("Degraded", "RunCut")
    assert bench.state() == "created"
    await bench.at(THREE + DAY)
    assert told(await bench.ends()) == ("Ready", "")
