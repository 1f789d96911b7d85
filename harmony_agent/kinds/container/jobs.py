"""Container: one that runs at the times of its schedule. Pure.

A run is begun once for its time: the ledger says so before it is begun. Runs never overlap: a time
that comes while one is under way is missed, as one is to which nobody came.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Final

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.schedule import Turn
from harmony_agent.kinds.container.actions import Conclude, Skip, Start, Unpause
from harmony_agent.kinds.container.facts import Job, LastRun
from harmony_agent.topology.containers import ContainerState
from scores.container import Container
from scores.names import format_time, parse_time

if TYPE_CHECKING:
    from harmony_agent.kinds.container.running import Case, ContainerPlan

UTC_NAME: Final = "UTC"


def zone_of(spec: Container) -> str:
    """The time zone of its schedule: the container's own, else UTC."""
    return spec.timezone or UTC_NAME


def calendar_of(spec: Container) -> str:
    """Schedule and time zone; "" where nothing is to run at times. Another one begins anew."""
    running = spec.schedule is not None and spec.state == "running"
    return f"{spec.schedule} {zone_of(spec)}" if running else ""


def job_facts(spec: Container, facts: Job | None) -> Job | None:
    """The facts to record at a claim: with another schedule or time zone its times begin anew."""
    calendar = calendar_of(spec)
    if not calendar:
        return None
    if facts is None or facts.calendar == calendar:
        return facts or Job(calendar)
    return Job(calendar, began=facts.began, from_run=facts.from_run)


def under_way(main: ContainerState) -> bool:
    """Tell if a run is under way."""
    return main.state in ("running", "stopping", "paused")


def unfinished(case: Case, main: ContainerState, reason: str) -> ContainerPlan | None:
    """Let a run end before its container is made anew for `reason`. None where none is under way."""
    facts = case.facts.job
    if not calendar_of(case.spec) or facts is None or not facts.began:
        return None
    if main.state == "exited" and main.run != facts.from_run and not case.rebooted:
        return _conclude(case, main, ended_run(main, facts.began))
    if not under_way(main):
        return None
    if main.state == "paused":
        return _unpause(case, main)
    text = f"{reason}: it is made anew when its run has ended"
    return Wait("RunUnderWay", text, "Progressing", 60.0)


def job(case: Case, main: ContainerState) -> ContainerPlan:
    """Plan the next run."""
    turn, facts = case.seen.turn, case.facts.job or Job()
    if turn is None:
        zone = zone_of(case.spec)
        text = f"this device has no time zone {zone}: install tzdata, or name another one"
        return Wait("TimezoneMissing", text, "Blocked", 60.0)
    if main.state == "paused":
        return _unpause(case, main)
    if turn.anew:
        return _skip(case, turn, "its schedule begins", turn.anew)
    if under_way(main):
        overlaps = turn.due or turn.last
        why = "the run before hasn't ended"
        return _skip(case, turn, why, overlaps) if overlaps else _told(case, turn)
    return _over(case, main, turn, facts) or _begin(case, main, turn)


def _unpause(case: Case, main: ContainerState) -> ContainerPlan:
    unpause = Unpause(
        name=case.name, reason="it is paused", is_disruptive=not case.ours, id=main.id
    )
    return Act((unpause,), ("state",))


def _over(case: Case, main: ContainerState, turn: Turn, facts: Job) -> ContainerPlan | None:
    """Plan what follows from the end of the last run. None where that is recorded."""
    if not facts.began:
        ended = main.state == "exited" and case.facts.concluded != main.run
        return _conclude(case, main, ended_run(main)) if ended else None
    if case.rebooted:
        return _conclude(case, main, LastRun("Cut", due=facts.began))
    if main.run == facts.from_run and turn.fresh:
        return _start(case, main, facts.began, "it hasn't started yet")
    if main.run == facts.from_run:
        return _conclude(case, main, LastRun("NotStarted", due=facts.began))
    if main.state == "created":
        return _conclude(case, main, LastRun("Cut", due=facts.began))
    return _conclude(case, main, ended_run(main, facts.began))


def ended_run(main: ContainerState, due: str = "") -> LastRun:
    """The last run of what has ended."""
    return LastRun("Exited", due, _wire(main.started), _wire(main.finished), main.exit_code or 0)


def _wire(moment: datetime | None) -> str:
    return format_time(moment) if moment is not None else ""


def _conclude(case: Case, main: ContainerState, last: LastRun) -> ContainerPlan:
    conclude = Conclude(
        name=case.name,
        reason="its run has ended",
        is_disruptive=False,
        run=main.run,
        exit_code=last.exit_code or 0,
        last=last,
    )
    return Act((conclude,), drift=False)


def _begin(case: Case, main: ContainerState, turn: Turn) -> ContainerPlan:
    late = turn.last if case.spec.run_missed and not turn.due else ""
    if turn.last and not case.spec.run_missed:
        return _skip(case, turn, "nobody came to it", turn.last)
    if due := turn.due or late:
        return _start(case, main, due, f"its time {due} has come")
    return _told(case, turn)


def _start(case: Case, main: ContainerState, due: str, reason: str) -> ContainerPlan:
    start = Start(
        name=case.name,
        reason=reason,
        is_disruptive=not case.ours,
        id=main.id,
        run=main.run,
        due=due,
    )
    return Act((start,), drift=False)


def _skip(case: Case, turn: Turn, reason: str, until: str) -> ContainerPlan:
    """Note the times up to `until` as missed."""
    missed = turn.passed + (1 if turn.due and until == turn.due else 0)
    skip = Skip(
        name=case.name,
        reason=f"{missed} missed: {reason}" if missed else reason,
        is_disruptive=False,
        until=until,
        missed=missed,
    )
    return Act((skip,), drift=False)


def _told(case: Case, turn: Turn) -> ContainerPlan:
    """Say how its last run ended, and what was missed since."""
    last, facts = case.facts.last, case.facts.job or Job()
    again = parse_time(turn.next).timestamp() if turn.next else None
    upcoming = f"next at {turn.next}"
    if last is not None and (fault := _fault(last)):
        reason = "RunCut" if last.how == "Cut" else "JobFailed"
        return Converged("Degraded", reason, f"{fault}; {upcoming}", again=again)
    if facts.missed_at and facts.missed_at > (last.due if last is not None else ""):
        text = (
            f"its run of {facts.missed_at} was missed ({facts.missed} so far): the agent or the device "
            f"was off, the clock was set, or the run before hadn't ended; {upcoming}"
        )
        return Converged("Ready", "RunMissed", text, again=again)
    return Converged("Ready", again=again)


def _fault(last: LastRun) -> str:
    which = f"its run of {last.due}" if last.due else "its last run"
    if last.how == "Cut":
        return (
            f"{which} was cut: the device went down, or its container was removed, before its end"
        )
    if last.how == "NotStarted":
        return f"{which} couldn't be started"
    return (
        f"{which} ended with {last.exit_code} at {last.ended}: see its log"
        if last.exit_code
        else ""
    )
