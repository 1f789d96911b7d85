"""A job that fails: what a timer starts, or a one-shot whose run is left alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core.actions import Act, Converged, Plan
from harmony_agent.core.changes import Moment
from harmony_agent.kinds.systemd_unit.actions import UnitAction
from scores.systemd_unit import SystemdUnit
from tests.unit.systemd_unit.bench import NAME, ONCE, SLEEP, Bench, web

TIMER = SystemdUnit(name="web.timer", content="[Timer]\nOnActiveSec=1h\n")
FAILED: dict[str, Any] = {
    "active_state": "failed",
    "result": "exit-code",
    "invocation": "new",
    "exit_status": 3,
    "since": 1_700_000_000_000_000,
    "began": 5_000,
}
TEXT = (
    "the last run of web.service failed (exit status 3/NOTIMPLEMENTED) at 2023-11-14T22:13:20.000Z: "
    "see its log"
)
JOB_FAILED = Converged("Degraded", "JobFailed", TEXT)


async def planned(
    bench: Bench, *, applied: str | None = None, changed: str = "", **seen: Any
) -> Plan[UnitAction]:
    """The plan for the unit as it was reached, and with a failed last run."""
    unit = await bench.kind.observe(NAME)
    desired = bench.store.desired(NAME)
    assert unit is not None
    assert desired is not None
    reached = desired.version if applied is None else applied
    record = replace(bench.record(), applied=reached, changed=changed)
    return bench.kind.plan(NAME, desired, record, replace(unit, **{**FAILED, **seen}))


@pytest.mark.parametrize(
    ("fields", "seen", "plan"),
    [
        ({"content": ONCE}, {}, JOB_FAILED),
        ({"content": SLEEP}, {"timed": True}, JOB_FAILED),
        ({"content": SLEEP}, {}, Converged()),
        ({"content": ONCE, "ignore_failure": True}, {}, Converged()),
        ({"content": ONCE}, {"active_state": "inactive", "result": "success"}, Converged()),
        ({"content": ONCE}, {"active_state": "activating", "result": "success"}, Converged()),
    ],
)
async def test_a_failed_run_is_told_and_nothing_is_started(
    fields: dict[str, Any], seen: dict[str, Any], plan: Converged
) -> None:
    bench = Bench()
    await bench.want(web(state="none", **fields))
    assert await planned(bench, **seen) == plan


@pytest.mark.parametrize(
    ("seen", "ended"),
    [
        (
            {"exit_status": 0, "result": "timeout"},
            "failed (timeout: it took longer than its unit allows) at",
        ),
        ({"exit_status": 137, "result": "signal"}, "failed (ended by SIGKILL) at"),
    ],
)
async def test_how_it_ended_is_told(seen: dict[str, Any], ended: str) -> None:
    bench = Bench()
    await bench.want(web(content=ONCE, state="none"))
    plan = await planned(bench, **seen)
    assert isinstance(plan, Converged)
    assert ended in plan.message


@pytest.mark.parametrize(
    ("applied", "changed", "told"),
    [
        ("", "", False),  # its files were written in this very pass
        ("sha256:older", "", False),
        (None, str(Moment("boot", 5_001, 1)), False),
        (None, str(Moment("boot", 4_999, 1)), True),
        (None, str(Moment("another", 5_001, 1)), True),
        (None, "", True),
    ],
)
async def test_a_run_with_other_files_says_nothing_of_these(
    applied: str | None, changed: str, told: bool
) -> None:
    bench = Bench()
    await bench.want(web(content=ONCE, state="none"))
    assert await planned(bench, applied=applied, changed=changed) == (
        JOB_FAILED if told else Converged()
    )


async def test_a_failing_one_that_was_there_before_is_told_at_once() -> None:
    bench = Bench()
    bench.units.vendor[NAME] = ONCE
    await bench.want(SystemdUnit(name=NAME, state="none"))
    assert await planned(bench, applied="") == JOB_FAILED


async def test_files_that_differ_are_repaired_all_the_same() -> None:
    bench = Bench()
    await bench.want(web(content=ONCE, state="none"))
    bench.units.disk[NAME] = ONCE + "#\n"
    plan = await planned(bench)
    assert isinstance(plan, Act)
    assert plan.fields == ("content",)


async def test_a_job_that_completed_and_that_its_timer_runs_again_is_not_started_by_us() -> None:
    bench = Bench()
    await bench.want(TIMER)
    assert bench.said(await bench.want(web(content=ONCE))) == ("Completed", "")
    bench.units.held.add(NAME)
    await bench.units.start(NAME)
    bench.units.calls.clear()
    assert await planned(bench) == JOB_FAILED
    assert bench.units.calls == []
    await bench.want(web(content=ONCE, ignore_failure=True))
    assert await planned(bench) == Converged("Completed")


async def test_a_job_of_a_timer_that_fails_is_started_once_for_each_spec() -> None:
    bench = Bench()
    await bench.want(TIMER)
    fails = ONCE.replace("/bin/true", "/bin/false")
    done = await bench.want(web(content=fails))
    assert isinstance(done.plan, Converged)
    assert (done.plan.phase, done.plan.reason) == ("Degraded", "JobFailed")
    assert "failed (exit status 1/FAILURE)" in done.plan.message
    assert bench.units.calls.count("start web.service") == 1
    bench.restart_agent()
    done = await bench.settle()
    assert isinstance(done.plan, Converged)
    assert done.plan.reason == "JobFailed"
    assert bench.units.calls.count("start web.service") == 1
    done = await bench.want(web(content=fails, ignore_failure=True))
    assert done.plan == Converged()
    assert bench.said(await bench.want(web(content=ONCE))) == ("Completed", "")


async def test_a_start_that_was_cut_short_is_made_up() -> None:
    bench = Bench()
    await bench.want(TIMER)
    await bench.want(web(content=ONCE.replace("/bin/true", "/bin/false")))
    bench.store.set_desired(web(content=ONCE))

    def die(action: Any) -> None:
        if type(action).__name__ == "Reload":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await bench.once(before=die)
    bench.restart_agent()
    assert bench.said(await bench.settle()) == ("Completed", "")


async def test_a_oneshot_without_a_timer_is_started_again() -> None:
    bench = Bench()
    await bench.want(web(content=ONCE))
    plan = await planned(bench)
    assert isinstance(plan, Act)
    assert plan.is_restart
