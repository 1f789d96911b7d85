"""Container: whether the one that is made as wanted runs as wanted, its init containers first. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.changes import Moment, is_due
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.container.actions import (
    Conclude,
    ContainerAction,
    EndInit,
    Restart,
    RunInit,
    Start,
    Stop,
    Unpause,
)
from harmony_agent.kinds.container.facts import ContainerFacts
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.topology.containers import ContainerState
from scores.container import Container

ContainerPlan = Plan[ContainerAction]


@dataclass(frozen=True, slots=True)
class Case:
    """One container that is wanted: its spec, the ledger's record with its facts, what was observed."""

    desired: Desired[Container]
    record: OwnershipRecord | None
    facts: ContainerFacts
    seen: Observed
    boot_id: str

    @property
    def spec(self) -> Container:
        """Desired spec."""
        return self.desired.spec

    @property
    def name(self) -> str:
        """Name of the resource, and of its container."""
        return self.desired.spec.name

    @property
    def ours(self) -> bool:
        """Return whether the ledger shows the name as ours, so that what has our labels may be
        disturbed.
        """
        return self.record is not None and f"container:{self.name}" in self.record.claims

    @property
    def rebooted(self) -> bool:
        """Return whether it was last started before the device was.

        What ended since may have been ended by that.
        """
        return self.facts.boot is not None and self.facts.boot != self.boot_id

    def inits_done(self, main: ContainerState) -> int:
        """Count the init containers that ended well for this container."""
        progress = self.facts.inits
        return progress.done if progress is not None and progress.main == main.id else 0

    def restart_due(self, main: ContainerState) -> bool:
        """Once for a token: it is another than the recorded one, or recorded and the restart never
        happened.
        """
        token = self.desired.restart_token
        if not token or self.record is None:
            return False
        at = main.started
        started = Moment(self.boot_id, 0, int(at.timestamp() * 1e6)) if at is not None else None
        due = is_due(token, self.facts.token, started)
        return due or self.facts.restart_from_run == main.run


def run(case: Case, main: ContainerState) -> ContainerPlan:
    """Plan what is to run."""
    return _stopped(case, main) if case.spec.state == "stopped" else _running(case, main)


def _stopped(case: Case, main: ContainerState) -> ContainerPlan:
    if main.state in ("created", "exited"):
        return Converged()
    paused = main.state == "paused"
    reason = "it is to be stopped"
    return _act(
        Stop(
            name=case.name,
            reason=reason,
            is_disruptive=not case.ours,
            id=main.id,
            paused=paused,
        ),
        "state",
    )


def _running(case: Case, main: ContainerState) -> ContainerPlan:
    match main.state:
        case "running":
            return _up(case, main)
        case "paused":
            reason = "it is paused"
            return _act(
                Unpause(name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id),
                "state",
            )
        case "stopping":
            reason = "it is being stopped"
            return _act(
                Stop(name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id),
                "state",
            )
        case "created":
            return _first(case, main)
        case _:
            return _ended(case, main)


def _up(case: Case, main: ContainerState) -> ContainerPlan:
    if case.restart_due(main):
        reason = "what it restarts on has changed"
        return Act(
            (
                Restart(
                    name=case.name,
                    reason=reason,
                    is_disruptive=not case.ours,
                    id=main.id,
                    run=main.run,
                ),
            ),
            for_others=True,
        )
    if case.spec.healthcheck is not None and main.health == "starting":
        return Wait("HealthStarting", "its health check hasn't passed yet", "Progressing", 1.0)
    if case.spec.healthcheck is not None and main.health == "unhealthy":
        return Wait("Unhealthy", "its health check fails: look at its logs", "Degraded", 5.0)
    return Converged()


def _start(
    case: Case,
    main: ContainerState,
    reason: str,
    *,
    counted: bool = False,
    drift: bool = True,
    for_others: bool = False,
) -> ContainerPlan:
    ended = main.run if counted else ""
    start = Start(
        name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id, run=main.run, ended=ended,
        exit_code=main.exit_code,
    )  # fmt: skip
    return Act((start,), is_restart=counted, drift=drift, for_others=for_others)


def _first(case: Case, main: ContainerState) -> ContainerPlan:
    done = case.inits_done(main)
    for init in case.spec.init_containers[done : done + 1]:
        return _init(case, init.name, done + 1, main)
    return _start(case, main, "it has never run")


def _init(case: Case, name: str, number: int, main: ContainerState) -> ContainerPlan:
    one = case.seen.inits.get(name)
    if one is None or one.state == "created":
        ident = "" if one is None else one.id
        return _act(
            RunInit(
                name=case.name,
                reason=f"run {name} first",
                is_disruptive=False,
                init=name,
                id=ident,
            )
        )
    failure = ""
    if one.state == "exited" and case.rebooted:
        failure = f"{name} was interrupted"
    elif one.state == "exited":
        failure = f"{name} exited with {one.exit_code}" if one.exit_code else ""
    elif one.broken or one.state in ("removing", "unknown"):
        failure = f"{name} is broken"
    elif name in case.seen.overdue:
        failure = f"{name} did not end in time"
    else:
        return Wait("InitRunning", f"waiting for {name} to end", "Progressing", 1.0)
    end = EndInit(
        name=case.name, reason=failure or f"{name} is done", is_disruptive=False, init=name, id=one.id,
        main=main.id,
        done=number, failure=failure,
    )  # fmt: skip
    return _act(end)


def _ended(case: Case, main: ContainerState) -> ContainerPlan:
    """It ran and ended. What is not to run again is concluded, so that after a reboot it is
    known to have ended.
    """
    well, concluded = main.exit_code == 0, case.facts.concluded == main.run
    if case.rebooted and not concluded:
        return _start(case, main, "the device was restarted", drift=False)
    if case.restart_due(main):
        return _start(case, main, "what it restarts on has changed", for_others=True)
    if case.spec.restart == "always" or (case.spec.restart == "on-failure" and not well):
        return _start(case, main, f"it exited with {main.exit_code}", counted=True)
    if not concluded and case.record is not None:
        return Act(
            (Conclude(name=case.name, reason="it has ended", is_disruptive=False, run=main.run),),
            drift=False,
        )
    if well:
        return Converged("Completed")
    return Wait(
        "ExitedNonZero", f"it exited with {main.exit_code}: look at its logs", "Failed", 60.0
    )


def _act(action: ContainerAction, *fields: str) -> ContainerPlan:
    return Act((action,), fields)
