"""Container: whether the one that is made as wanted runs as wanted, its init containers first. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.changes import Moment, is_due
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.core.runs import final_end, runs_again
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
from harmony_agent.kinds.container.hardware import plugs, replugged
from harmony_agent.kinds.container.jobs import ended_run, job
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.payload import spec_label
from harmony_agent.topology.containers import ContainerState
from scores.container import Container

ContainerPlan = Plan[ContainerAction]
CALM_SECONDS: Final = 600.0
"""As long as the engine's own crash loop remembers."""


@frozen()
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
    def label(self) -> str | None:
        """Label of a container that is made of this spec now; None where an env file is missing."""
        digests = {path: found for path, found in self.seen.env_files.items() if found is not None}
        if any(path not in digests for path in self.spec.env_files):
            return None
        return spec_label(self.spec, digests, self.seen.nodes, self.desired.secrets)

    @property
    def replugged(self) -> tuple[str, ...]:
        """The devices that were plugged in anew since it was started."""
        return replugged(self.facts.plugs, plugs(self.spec, self.seen.nodes))

    def runs_again(self, code: int | None, main: ContainerState | None) -> bool:
        """Tell if what ended with `code` is to run again by itself."""
        return runs_again(self.spec.restart, code) and not (self._spent(main) and code is not None)

    def _spent(self, main: ContainerState | None) -> bool:
        most = self.spec.restart_tries
        return most is not None and not lasted(main) and (self.facts.tries or 0) >= most

    def final_end(self, code: int | None) -> Converged | Wait:
        """The plan for what has ended with `code` and isn't to run again."""
        if not runs_again(self.spec.restart, code):
            return final_end(code)
        text = f"it ended again after {self.spec.restart_tries} tries, with {code}: look at its logs; a new spec runs it again"
        return Wait("TriesSpent", text, "Failed", 60.0)

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

    def restart_due(self, run: str) -> bool:
        """Once for a token: it is another than the recorded one, or recorded and the restart never
        happened. `run` is the last one that is known.
        """
        token = self.desired.restart_token
        if not token or self.record is None:
            return False
        at = run.partition("@")[2]
        started = None
        if at:
            wall = int(datetime.fromisoformat(at).timestamp() * 1e6)
            started = Moment(self.boot_id, 0, wall)
        due = is_due(token, self.facts.token, started)
        return due or self.facts.restart_from_run == run


def lasted(main: ContainerState | None) -> bool:
    """Tell if its last run was long enough to begin a new row of tries."""
    if main is None or main.started is None or main.finished is None:
        return False
    return (main.finished - main.started).total_seconds() >= CALM_SECONDS


def run(case: Case, main: ContainerState) -> ContainerPlan:
    """Plan what is to run."""
    if case.spec.state == "stopped":
        return _stopped(case, main)
    return job(case, main) if case.spec.schedule is not None else _running(case, main)


def finished(case: Case, main: ContainerState | None) -> ContainerPlan | None:
    """Plan nothing where its last run has ended for this spec, also where somebody has removed its
    container since. None where it runs, or is to run.
    """
    facts, code = case.facts, case.facts.concluded_with
    if case.spec.schedule is not None:
        return None
    if not facts.concluded or code is None or facts.label != case.label:
        return None
    if main is not None and not _ended_as(facts.concluded, main):
        return None
    if case.restart_due(facts.concluded) or case.runs_again(code, main):
        return None
    if runs_again(case.spec.restart, code) and case.replugged:
        return None
    return Converged() if case.spec.state == "stopped" else case.final_end(code)


def _ended_as(run: str, main: ContainerState) -> bool:
    """Tell whether `run` is the last one of `main`; of one that is broken only the id is known."""
    if main.broken:
        return run.startswith(f"{main.id}@")
    return main.run == run and main.state not in ("running", "paused", "stopping")


def _stopped(case: Case, main: ContainerState) -> ContainerPlan:
    if main.state in ("created", "exited"):
        return Converged()
    paused = main.state == "paused"
    reason = "it is to be stopped"
    return act(
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
            return act(
                Unpause(name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id),
                "state",
            )
        case "stopping":
            reason = "it is being stopped"
            return act(
                Stop(name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id),
                "state",
            )
        case "created":
            return _first(case, main)
        case _:
            return _ended(case, main)


def _up(case: Case, main: ContainerState) -> ContainerPlan:
    if (again := _again(case, main)) is not None:
        return again
    if case.spec.healthcheck is not None and main.health == "starting":
        return Wait("HealthStarting", "its health check hasn't passed yet", "Progressing", 1.0)
    if case.spec.healthcheck is not None and main.health == "unhealthy":
        return Wait("Unhealthy", "its health check fails: look at its logs", "Degraded", 5.0)
    return Converged()


def _again(case: Case, main: ContainerState) -> ContainerPlan | None:
    """Plan a restart of what runs. None where it needs none."""
    if case.restart_due(main.run):
        reason = "what it restarts on has changed"
        return Act((_restart(case, main, reason),), for_others=True)
    if case.record is not None and case.facts.restart_from_run == main.run:
        return Act((_restart(case, main, "its restart was cut short"),), drift=False)
    if case.seen.stale:
        replaced = ", ".join(case.seen.stale)
        reason = f"{replaced} was replaced, and it still has the old one"
        return act(_restart(case, main, reason), "mounts")
    if case.replugged:
        again = _restart(case, main, f"{', '.join(case.replugged)} was plugged in again")
        return Act((again,), drift=False)
    return None


def _restart(case: Case, main: ContainerState, reason: str) -> Restart:
    return Restart(
        name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id, run=main.run
    )


def _start(
    case: Case,
    main: ContainerState,
    reason: str,
    *,
    counted: bool = False,
    drift: bool = True,
    for_others: bool = False,
    fields: tuple[str, ...] = (),
) -> ContainerPlan:
    ended = main.run if counted else ""
    start = Start(
        name=case.name, reason=reason, is_disruptive=not case.ours, id=main.id, run=main.run, ended=ended,
        calm=lasted(main), exit_code=main.exit_code,
    )  # fmt: skip
    return Act((start,), fields, is_restart=counted, drift=drift, for_others=for_others)


def _first(case: Case, main: ContainerState) -> ContainerPlan:
    done = case.inits_done(main)
    for init in case.spec.init_containers[done : done + 1]:
        return _init(case, init.name, done + 1, main)
    return _start(case, main, "it has never run", drift=not case.replugged)


def _init(case: Case, name: str, number: int, main: ContainerState) -> ContainerPlan:
    one = case.seen.inits.get(name)
    if one is None or one.state == "created":
        ident = "" if one is None else one.id
        return act(
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
    return act(end)


def _ended(case: Case, main: ContainerState) -> ContainerPlan:
    """It ran and ended. What is not to run again is concluded, so that after a reboot it is
    known to have ended.
    """
    known = case.facts.concluded == main.run
    concluded = known and case.facts.concluded_with is not None
    if case.rebooted and not known:
        return _start(case, main, "the device was restarted", drift=False)
    if case.restart_due(main.run):
        return _start(case, main, "what it restarts on has changed", for_others=True)
    if (again := _by_itself(case, main)) is not None:
        return again
    if not concluded and case.record is not None:
        conclude = Conclude(
            name=case.name,
            reason="it has ended",
            is_disruptive=False,
            run=main.run,
            exit_code=main.exit_code or 0,
            last=ended_run(main),
        )
        return Act((conclude,), drift=False)
    return case.final_end(main.exit_code)


def _by_itself(case: Case, main: ContainerState) -> ContainerPlan | None:
    """Plan to start what `restart` has run again. None where it stays ended."""
    if runs_again(case.spec.restart, main.exit_code) and case.replugged:
        reason = f"{', '.join(case.replugged)} was plugged in again"
        return _start(case, main, reason, drift=False)
    if not case.runs_again(main.exit_code, main):
        return None
    return _after_its_end(case, main)


def _after_its_end(case: Case, main: ContainerState) -> ContainerPlan:
    """What ended is started: at the pace of its ends, or as drift where somebody else ended it.
    Where nothing tells who did, it counts as drift.
    """
    match case.seen.end:
        case "by-hand":
            return _start(case, main, "it was stopped by hand", fields=("state",))
        case "unexplained":
            why = "it has ended, and podman doesn't tell any more if somebody stopped it"
            return _start(case, main, why, fields=("state",))
        case "recent":
            text = "it has ended: podman tells in a moment if somebody stopped it"
            return Wait("JustEnded", text, "Degraded", 1.0)
        case _:
            return _start(case, main, f"it exited with {main.exit_code}", counted=True)


def act(action: ContainerAction, *fields: str) -> ContainerPlan:
    """Plan one step; `fields` are what differs."""
    return Act((action,), fields)
