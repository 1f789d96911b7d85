"""Container: what to do next, from what is wanted, what the ledger says and what was observed.
Pure.

What can differ behind our back, and is found: whether the container is there, its name, whether it
runs, and the fields of `ContainerState.config` (memory, cpus, pids, healthcheck, network), compared
with what they were right after it was made. Every other field of a Score is fixed for a container's
id, so that the ``io.harmony.spec`` label vouches for it: image, command, args, env, env_files
(their digests), ports, mounts, user, working_dir, hostname, labels, stop_signal, cap_add, cap_drop,
read_only, no_new_privileges, init_containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from harmony_agent.core.reconciler import (
    Act,
    Converged,
    Desired,
    Facts,
    OwnershipRecord,
    Plan,
    Wait,
)
from harmony_agent.kinds.container.actions import (
    Conclude,
    ContainerAction,
    Create,
    EndInit,
    EnsureImage,
    Park,
    Remember,
    Remove,
    Rename,
    Restart,
    Restore,
    RunInit,
    Start,
    Stop,
    Unpause,
)
from harmony_agent.kinds.container.payload import SPEC, spec_label
from harmony_agent.topology.containers import ContainerState
from scores.container import Container

WATCHED: Final = ("memory", "cpus", "pids", "healthcheck", "network")
"""Fields that can be changed of a container without changing its id."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Containers under a resource's name.

    `main` is ours, by the recorded id; without one, by its labels. `holder` has our name, but isn't
    ours. `inits` are its init containers by name; those in `overdue` have run for too long.
    `env_files` are the desired spec's files, digests by path.
    """

    main: ContainerState | None = None
    holder: ContainerState | None = None
    inits: Mapping[str, ContainerState] = field(default_factory=dict)
    overdue: frozenset[str] = frozenset()
    env_files: Mapping[str, str | None] = field(default_factory=dict)


ContainerPlan = Plan[ContainerAction]


def decide(
    name: str,
    desired: Desired[Container] | None,
    record: OwnershipRecord | None,
    seen: Observed | None,
    boot_id: str,
) -> ContainerPlan:
    """Plan the next actions."""
    facts: Facts = record.facts if record is not None else {}
    if desired is None:
        return _removal(name, facts, seen)
    return _Decision(desired, record, facts, seen or Observed(), boot_id).plan()


def _removal(name: str, facts: Facts, seen: Observed | None) -> ContainerPlan:
    if seen is None:
        return Converged()
    ours = [*seen.inits.values(), *([seen.main] if seen.main is not None else [])]
    former = (facts.get("former") or {}).get("id")
    actions: list[ContainerAction] = [
        Remove(name=name, reason="no longer wanted", id=one.id, paused=one.state == "paused")
        for one in ours
        if one.id != former
    ]
    if owed(facts):
        actions.append(Restore(name=name, reason="give way to what was there before"))
    return Act(tuple(actions)) if actions else Converged()


def owed(facts: Facts) -> bool:
    """Return whether a container that was adopted is still to be put back."""
    former: Mapping[str, Any] = facts.get("former") or {}
    return bool(former) and not former.get("back")


@dataclass(frozen=True, slots=True)
class _Decision:
    desired: Desired[Container]
    record: OwnershipRecord | None
    facts: Facts
    seen: Observed
    boot_id: str

    @property
    def spec(self) -> Container:
        return self.desired.spec

    @property
    def name(self) -> str:
        return self.desired.spec.name

    @property
    def former(self) -> Mapping[str, Any]:
        """The container that was adopted, as it is recorded."""
        return self.facts.get("former") or {}

    @property
    def ours(self) -> bool:
        """Return whether the ledger shows the name as ours, so that what has our labels may be
        disturbed.
        """
        return self.record is not None and f"container:{self.name}" in self.record.claims

    def plan(self) -> ContainerPlan:  # noqa: PLR0911  # one return a question, in their order
        main, holder = self.seen.main, self.seen.holder
        if holder is not None:
            return self._conflict(holder)
        if main is None:
            return self._make("there is no such container", ("name",))
        missing = next(
            (path for path in self.spec.env_files if not self.seen.env_files.get(path)), None
        )
        if missing is not None:
            return Wait(
                "EnvFileMissing",
                f"cannot read {missing}: make the file, or take it out",
                "Blocked",
                5.0,
            )
        if differs := self._differs(main):
            return self._make(differs[0], differs[1], main)
        if main.name != self.name:
            return self._act(
                Rename(
                    name=self.name, reason="it was renamed", is_disruptive=not self.ours, id=main.id
                ),
                "name",
            )
        known = self.facts.get("id") == main.id and "made" in self.facts
        if not known and self.record is not None:
            remember = Remember(
                name=self.name,
                reason="how it was made isn't recorded",
                is_disruptive=False,
                id=main.id,
            )
            return Act((remember,), drift=False)
        if strays := self._strays(main):
            return Act(
                tuple(self._remove(one, "its init container is done with") for one in strays),
                drift=False,
            )
        return self._stopped(main) if self.spec.state == "stopped" else self._running(main)

    def _act(self, action: ContainerAction, *fields: str) -> ContainerPlan:
        return Act((action,), fields)

    def _conflict(self, holder: ContainerState) -> ContainerPlan:
        if not self.spec.adopt or self.former.get("id", holder.id) != holder.id:
            return Wait(
                "OwnershipConflict",
                f"a container {self.name} that isn't ours is there already: remove or rename it, or set adopt",
                "Blocked",
                10.0,
            )
        return self._act(
            Park(name=self.name, reason="adopt what has our name", id=holder.id), "name"
        )

    def _make(
        self, reason: str, fields: tuple[str, ...], old: ContainerState | None = None
    ) -> ContainerPlan:
        """Images first, so that what runs goes on until its successor can be made."""
        images = dict.fromkeys(
            [self.spec.image, *(init.image for init in self.spec.init_containers if init.image)]
        )
        actions: list[ContainerAction] = [
            EnsureImage(name=self.name, reason=reason, is_disruptive=False, image=image)
            for image in images
        ]
        gone = [*self.seen.inits.values(), *([old] if old is not None else [])]
        actions += [self._take_away(one, reason) for one in gone]
        actions.append(Create(name=self.name, reason=reason, is_disruptive=False))
        return Act(tuple(actions), fields)

    def _take_away(self, one: ContainerState, reason: str) -> ContainerAction:
        """Remove it; but what was adopted as it was is its owner's, and only set aside."""
        if one.id == self.former.get("id"):
            return Park(name=self.name, reason=reason, id=one.id)
        return self._remove(one, reason)

    def _remove(self, one: ContainerState, reason: str) -> Remove:
        return Remove(
            name=self.name, reason=reason, is_disruptive=not self.ours, id=one.id, paused=one.state == "paused"
        )  # fmt: skip

    def _done(self, main: ContainerState) -> int:
        """Count the init containers that ended well for this container."""
        progress: Mapping[str, Any] = self.facts.get("inits") or {}
        return int(progress.get("done", 0)) if progress.get("main") == main.id else 0

    def _strays(self, main: ContainerState) -> list[ContainerState]:
        """Init containers that nothing waits for any more."""
        started = main.state != "created" or self.spec.state == "stopped"
        waited = (
            [] if started else [init.name for init in self.spec.init_containers[self._done(main) :]]
        )
        return [one for name, one in self.seen.inits.items() if name not in waited]

    def _differs(self, main: ContainerState) -> tuple[str, tuple[str, ...]] | None:
        """Reason to replace `main`, and the fields that differ. None if it can stay."""
        digests = {path: found for path, found in self.seen.env_files.items() if found is not None}
        if main.labels.get(SPEC) != spec_label(self.spec, digests):
            return "it was made from another spec", ("env_files",) if self.spec.env_files else ()
        if main.broken or main.state in ("removing", "unknown"):
            return "it is broken", ("state",)
        made: Mapping[str, Any] = self.facts.get("made") or {}
        watched = [name for name in WATCHED if name in self.spec.model_fields_set and name in made]
        differing = tuple(name for name in watched if made[name] != main.config.get(name))
        return (f"{', '.join(differing)} differs", differing) if differing else None

    def _stopped(self, main: ContainerState) -> ContainerPlan:
        if main.state in ("created", "exited"):
            return Converged()
        paused = main.state == "paused"
        reason = "it is to be stopped"
        return self._act(
            Stop(
                name=self.name,
                reason=reason,
                is_disruptive=not self.ours,
                id=main.id,
                paused=paused,
            ),
            "state",
        )

    def _running(self, main: ContainerState) -> ContainerPlan:
        match main.state:
            case "running":
                return self._up(main)
            case "paused":
                reason = "it is paused"
                return self._act(
                    Unpause(name=self.name, reason=reason, is_disruptive=not self.ours, id=main.id),
                    "state",
                )
            case "stopping":
                reason = "it is being stopped"
                return self._act(
                    Stop(name=self.name, reason=reason, is_disruptive=not self.ours, id=main.id),
                    "state",
                )
            case "created":
                return self._first(main)
            case _:
                return self._ended(main)

    def _restart_due(self, main: ContainerState) -> bool:
        """Once for a token: it is another than the recorded one, or recorded and the restart never
        happened.
        """
        token = self.desired.restart_token
        if not token or self.record is None:
            return False
        return self.facts.get("token", "") != token or self.facts.get("from") == main.run

    def _up(self, main: ContainerState) -> ContainerPlan:
        if self._restart_due(main):
            reason = "what it restarts on has changed"
            return Act(
                (
                    Restart(
                        name=self.name,
                        reason=reason,
                        is_disruptive=not self.ours,
                        id=main.id,
                        run=main.run,
                    ),
                )
            )
        if self.spec.healthcheck is not None and main.health == "starting":
            return Wait("HealthStarting", "its health check hasn't passed yet", "Progressing", 1.0)
        if self.spec.healthcheck is not None and main.health == "unhealthy":
            return Wait("Unhealthy", "its health check fails: look at its logs", "Degraded", 5.0)
        return Converged()

    def _start(
        self, main: ContainerState, reason: str, *, counted: bool = False, drift: bool = True
    ) -> ContainerPlan:
        ended = main.run if counted else ""
        start = Start(
            name=self.name, reason=reason, is_disruptive=not self.ours, id=main.id, run=main.run, ended=ended,
            exit_code=main.exit_code,
        )  # fmt: skip
        return Act((start,), is_restart=counted, drift=drift)

    def _first(self, main: ContainerState) -> ContainerPlan:
        done = self._done(main)
        for init in self.spec.init_containers[done : done + 1]:
            return self._init(init.name, done + 1, main)
        return self._start(main, "it has never run")

    def _init(self, name: str, number: int, main: ContainerState) -> ContainerPlan:
        one = self.seen.inits.get(name)
        if one is None or one.state == "created":
            ident = "" if one is None else one.id
            return self._act(
                RunInit(
                    name=self.name,
                    reason=f"run {name} first",
                    is_disruptive=False,
                    init=name,
                    id=ident,
                )
            )
        failure = ""
        if one.state == "exited" and self._rebooted:
            failure = f"{name} was interrupted"
        elif one.state == "exited":
            failure = f"{name} exited with {one.exit_code}" if one.exit_code else ""
        elif one.broken or one.state in ("removing", "unknown"):
            failure = f"{name} is broken"
        elif name in self.seen.overdue:
            failure = f"{name} did not end in time"
        else:
            return Wait("InitRunning", f"waiting for {name} to end", "Progressing", 1.0)
        end = EndInit(
            name=self.name, reason=failure or f"{name} is done", is_disruptive=False, init=name, id=one.id,
            main=main.id,
            done=number, failure=failure,
        )  # fmt: skip
        return self._act(end)

    @property
    def _rebooted(self) -> bool:
        """Return whether it was last started before the device was.

        What ended since may have been ended by that.
        """
        return bool(self.facts.get("boot", self.boot_id) != self.boot_id)

    def _ended(self, main: ContainerState) -> ContainerPlan:
        """It ran and ended. What is not to run again is concluded, so that after a reboot it is
        known to have ended.
        """
        well, concluded = main.exit_code == 0, self.facts.get("concluded") == main.run
        if self._rebooted and not concluded:
            return self._start(main, "the device was restarted", drift=False)
        if self._restart_due(main):
            return self._start(main, "what it restarts on has changed")
        if self.spec.restart == "always" or (self.spec.restart == "on-failure" and not well):
            return self._start(main, f"it exited with {main.exit_code}", counted=True)
        if not concluded and self.record is not None:
            return Act(
                (
                    Conclude(
                        name=self.name, reason="it has ended", is_disruptive=False, run=main.run
                    ),
                ),
                drift=False,
            )
        if well:
            return Converged("Completed")
        return Wait(
            "ExitedNonZero", f"it exited with {main.exit_code}: look at its logs", "Failed", 60.0
        )
