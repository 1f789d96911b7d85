"""Container: its last run and its schedule, as the status shows them. Pure."""

from __future__ import annotations

from typing import TypedDict

from harmony_agent.core.schedule import Turn
from harmony_agent.kinds.container.facts import ContainerFacts, LastRun
from scores.status import RunDetail, ScheduleDetail


class RunsShown(TypedDict):
    """Fields of a `ContainerDetail`."""

    last_run: RunDetail | None
    schedule: ScheduleDetail | None


def runs_of(facts: ContainerFacts, turn: Turn | None) -> RunsShown:
    """Collect what is known of both; None where there is none."""
    last, job = facts.last, facts.job
    schedule = None
    if job is not None:
        upcoming = turn.next if turn is not None else ""
        schedule = ScheduleDetail(
            next=upcoming or None, missed=job.missed, missed_at=job.missed_at or None
        )
    return RunsShown(last_run=_run(last) if last is not None else None, schedule=schedule)


def _run(last: LastRun) -> RunDetail:
    return RunDetail(
        result=last.how,
        due=last.due or None,
        started=last.started or None,
        ended=last.ended or None,
        exit_code=last.exit_code,
    )
