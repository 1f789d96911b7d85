"""Plan a unit's run state: running or stopped. Pure; judges by ActiveState, never by SubState."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.changes import Moment, is_due
from harmony_agent.core.frozen import frozen
from harmony_agent.kinds.systemd_unit import last_run
from harmony_agent.kinds.systemd_unit.actions import (
    Note,
    ReloadUnit,
    Restart,
    Start,
    Stop,
    UnitAction,
)
from harmony_agent.kinds.systemd_unit.facts import UnitFacts
from harmony_agent.kinds.systemd_unit.failure import how
from harmony_agent.topology.units import RUNNING, Unit
from scores.status import ResourcePhase

RETRY_CONDITION: Final = 300.0
"""Seconds after which a unit whose conditions didn't hold is started again."""
SOON: Final = 1.0


@frozen()
class Goal:
    """Desired run: with these files, after these changes of other resources."""

    files: str
    restart: str = ""
    reload: str = ""
    boot: str = ""
    ignore_failure: bool = False

    def noted(self, unit: Unit, facts: UnitFacts) -> UnitFacts:
        """The facts to record before the unit is started for this goal."""
        return replace(
            facts,
            started=self.files,
            restart=self.restart,
            reload=self.reload,
            run=unit.run,
            changed=0,
            completed=False,
        )

    def is_other(self, unit: Unit, facts: UnitFacts) -> bool:
        """Return whether the unit was last started for another goal."""
        return facts.started != self.files or is_due(
            self.restart, facts.restart, self._started(unit)
        )

    def is_reload_due(self, unit: Unit, facts: UnitFacts) -> bool:
        """Return whether the unit was started or reloaded before a resource of reload_on
        changed.
        """
        return is_due(self.reload, facts.reload, self._started(unit))

    def _started(self, unit: Unit) -> Moment | None:
        return Moment(self.boot, unit.began, 0) if unit.began else None


def run(goal: Goal, unit: Unit, facts: UnitFacts, *, mine: bool) -> Plan[UnitAction]:
    """Have it run, once for every goal. `mine` is whether the ledger shows the unit as ours."""
    if unit.active_state in RUNNING:
        return _running(goal, unit, facts, mine)
    if unit.active_state == "activating":
        return _activating(goal, unit, facts, mine)
    if unit.active_state == "deactivating":
        return Wait("Deactivating", f"{unit.name} is being stopped", seconds=SOON)
    if unit.job and not goal.is_other(unit, facts):
        return Wait("JobQueued", f"a {unit.job} job for {unit.name} is queued", seconds=SOON)
    if unit.active_state == "failed":
        return _failed(goal, unit, facts)
    return _inactive(goal, unit, facts)


def stop(unit: Unit, *, mine: bool) -> Plan[UnitAction]:
    """Have it not run. A unit that failed doesn't run."""
    up = unit.active_state in RUNNING or unit.active_state == "activating"
    if unit.active_state == "deactivating" or (up and unit.job == "stop"):
        return Wait("Deactivating", f"{unit.name} is being stopped", seconds=SOON)
    if up or unit.job in ("start", "restart", "try-restart"):
        return _act(
            Stop(name=unit.name, reason=f"the unit is {unit.active_state}", is_disruptive=not mine),
            fields=("state",),
        )
    return Converged()


def _running(goal: Goal, unit: Unit, facts: UnitFacts, mine: bool) -> Plan[UnitAction]:
    never_done = facts.run != "" and facts.run == unit.run
    if goal.is_other(unit, facts):
        return _anew(goal, unit, facts, mine)
    if never_done and unit.job:
        return Wait("JobQueued", f"a {unit.job} job for {unit.name} is queued", seconds=SOON)
    if never_done:
        note, why = goal.noted(unit, facts), "a restart was cut short"
        restart = Restart(name=unit.name, reason=why, note=note, is_disruptive=not mine)
        return Act((restart,), drift=False)  # what it was for is told already
    if goal.is_reload_due(unit, facts) or (facts.changed and facts.changed == unit.changed):
        return _reload(goal, unit, facts, mine)
    return Converged()


def _anew(goal: Goal, unit: Unit, facts: UnitFacts, mine: bool) -> Plan[UnitAction]:
    """Restart it for other files, or for a resource that it restarts on."""
    for_others = facts.started == goal.files
    others = "its template, or " if "@" in unit.name else ""
    why = f"{others}a resource of restart_on changed" if for_others else "its files changed"
    note = goal.noted(unit, facts)
    restart = Restart(name=unit.name, reason=why, note=note, is_disruptive=not mine)
    return _act(restart, for_others=for_others)


def _reload(goal: Goal, unit: Unit, facts: UnitFacts, mine: bool) -> Plan[UnitAction]:
    why = "a resource of reload_on changed"
    if unit.job:
        return Wait("JobQueued", f"a {unit.job} job for {unit.name} is queued", seconds=SOON)
    if not unit.can_reload:
        note = goal.noted(unit, facts)
        restart = Restart(name=unit.name, reason=why, note=note, is_disruptive=not mine)
        return _act(restart, for_others=True)
    note = replace(facts, reload=goal.reload, changed=unit.changed)
    reload = ReloadUnit(name=unit.name, reason=why, note=note, is_disruptive=not mine)
    return _act(reload, for_others=True)


def _activating(goal: Goal, unit: Unit, facts: UnitFacts, mine: bool) -> Plan[UnitAction]:
    if goal.is_other(unit, facts):
        # What hangs with the old files must not keep the new ones from being tried.
        return _anew(goal, unit, facts, mine)
    if unit.oneshot and facts.completed:
        return Converged("Completed")
    if unit.result != "success":
        text = f"{unit.name} failed ({how(unit)}), and systemd starts it again"
        return Wait("AutoRestart", text, phase="Degraded", seconds=5.0)
    return Wait("Activating", f"{unit.name} is starting", seconds=SOON)


def _failed(goal: Goal, unit: Unit, facts: UnitFacts) -> Plan[UnitAction]:
    other = goal.is_other(unit, facts)
    if not other and unit.oneshot and unit.timed and unit.run != facts.run:
        phase: ResourcePhase = "Completed" if facts.completed else "Ready"
        return Converged(phase) if goal.ignore_failure else last_run.failed(unit)
    start = Start(
        name=unit.name,
        reason=f"the unit failed: {how(unit)}",
        note=goal.noted(unit, facts) if other else None,
        is_disruptive=False,
    )
    return _act(start, fields=("state",), again=not other)


def _inactive(goal: Goal, unit: Unit, facts: UnitFacts) -> Plan[UnitAction]:
    if goal.is_other(unit, facts):
        note = goal.noted(unit, facts)
        return _act(
            Start(name=unit.name, reason="the unit is inactive", note=note, is_disruptive=False),
            fields=("state",),
        )
    if unit.oneshot and facts.completed:
        return Converged("Completed")
    if unit.condition is False and not unit.rested:
        text = f"systemd didn't start {unit.name}: a Condition…= of it doesn't hold"
        return Wait("ConditionFailed", text, phase="Blocked", seconds=RETRY_CONDITION)
    if unit.assertion is False and not unit.rested:
        text = f"systemd didn't start {unit.name}: an Assert…= of it doesn't hold"
        return Wait("AssertFailed", text, phase="Blocked", seconds=RETRY_CONDITION)
    seen_to_end = bool(unit.invocation) and unit.run != facts.run and unit.result == "success"
    if unit.oneshot and (seen_to_end or unit.finished):
        ended = Note(
            name=unit.name,
            reason="it ran to its end",
            note=replace(facts, completed=True),
            is_disruptive=False,
        )
        return Act((ended,), drift=False)
    # Stopped by hand is drift, repaired at once; what ended by itself, or leaves no trace of how,
    # is paced.
    again = unit.ended or not unit.invocation
    return _act(
        Start(name=unit.name, reason="the unit is inactive", is_disruptive=False),
        fields=("state",),
        again=again,
    )


def _act(
    action: UnitAction,
    *,
    fields: tuple[str, ...] = (),
    again: bool = False,
    for_others: bool = False,
) -> Act[UnitAction]:
    return Act((action,), fields, again, for_others=for_others)
