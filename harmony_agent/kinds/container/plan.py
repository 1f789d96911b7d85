"""Container: what to do next, from what is wanted, what the ledger says and what was observed.
Pure.

What can differ behind our back, and is found: whether the container is there, its name, whether it
runs, and the fields of `ContainerState.config` (memory, cpus, pids, healthcheck, networks), compared
with what they were right after it was made. Every other field of a Score is fixed for a container's
id, so that the ``io.harmony.spec`` label vouches for it: image, command, args, env, env_files
(their digests), ports, mounts, user, working_dir, hostname, labels, stop_signal, cap_add, cap_drop,
read_only, no_new_privileges, init_containers, and so on: `payload` lists them. Of its devices the
label holds the numbers that they had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.core.env_files import missing
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.core.secrets import missing as missing_secret
from harmony_agent.kinds.container.actions import (
    ContainerAction,
    Create,
    EnsureImage,
    Park,
    Rehearse,
    Remember,
    Remove,
    Rename,
    Retire,
)
from harmony_agent.kinds.container.facts import read
from harmony_agent.kinds.container.hardware import unplugged
from harmony_agent.kinds.container.jobs import unfinished
from harmony_agent.kinds.container.limits import KEEPS_GROUPS, remedy
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.payload import SPEC
from harmony_agent.kinds.container.removal import removal
from harmony_agent.kinds.container.running import Case, ContainerPlan, act, finished, run
from harmony_agent.topology.containers import ContainerState
from scores.container import Container

WATCHED: Final = ("memory", "cpus", "pids", "healthcheck", "network", "networks")
"""Fields that can be changed of a container without changing its id."""


def plan(
    name: str,
    desired: Desired[Container] | None,
    record: OwnershipRecord | None,
    observed: Observed | None,
    boot_id: str,
) -> ContainerPlan:
    """Plan the next actions."""
    facts = read(record)
    if desired is None:
        return removal(name, facts, observed)
    return _wanted(Case(desired, record, facts, observed or Observed(), boot_id))


def _wanted(case: Case) -> ContainerPlan:  # noqa: PLR0911  # one return a question, in their order
    main, holder = case.seen.main, case.seen.holder
    if holder is not None:
        return _conflict(case, holder)
    over = finished(case, main)
    if over is None and (unfit := _unfit(case)) is not None and not _stays(case, main):
        return unfit
    if over is not None and (main is None or _broken(main)):
        return _done_with(case, _left(case)) or over
    if main is None:
        return _lacking(case) or _make(case, "there is no such container", ("name",))
    if (unread := missing(case.spec.env_files, case.seen.env_files)) is not None:
        return unread
    gone = _lacking(case) or unplugged(case.spec, case.seen.nodes)
    if over is None and gone is not None:
        return run(case, main) if case.spec.state == "stopped" else gone
    if over is None and (differs := _differs(case, main)):
        return unfinished(case, main, differs[0]) or _make(case, differs[0], differs[1], main)
    if main.name != case.name:
        return act(
            Rename(
                name=case.name, reason="it was renamed", is_disruptive=not case.ours, id=main.id
            ),
            "name",
        )
    known = case.facts.id == main.id and case.facts.made is not None
    if not known and case.record is not None:
        remember = Remember(
            name=case.name,
            reason="how it was made isn't recorded",
            is_disruptive=False,
            id=main.id,
        )
        return Act((remember,), drift=False)
    return _done_with(case, _strays(case, main)) or _told(case, run(case, main))


def _lacking(case: Case) -> Wait | None:
    """Wait for a secret that it is made of. That of a login is asked for when something is pulled."""
    inside = case.spec.secrets_inside()
    held = tuple(one for one in case.desired.secrets if one.name in inside)
    return missing_secret(replace(case.desired, secrets=held))


def _told(case: Case, plan: ContainerPlan) -> ContainerPlan:
    """Say with what is as wanted that the name of its image means another one by now."""
    if not (isinstance(plan, Converged) and case.seen.moved):
        return plan
    text = (
        f"{case.spec.image} is another image by now, and it goes on with the one before: remove the "
        "container, or give the new image a name of its own"
    )
    return replace(plan, reason="ImageMoved", message=text)


def _stays(case: Case, main: ContainerState | None) -> bool:
    """Return whether it runs as it is wanted, however it came to be started."""
    return main is not None and main.state in ("running", "paused") and _differs(case, main) is None


def _unfit(case: Case) -> Wait | None:
    """Hold where podman could make it and not start it, or would drop what is asked. What runs goes
    on.
    """
    if case.seen.runtime:
        return Wait(
            "KeepGroupsUnsupported",
            f"podman's runtime {case.seen.runtime} can't keep groups: install {KEEPS_GROUPS} and "
            f'set runtime = "{KEEPS_GROUPS}" below [engine] of containers.conf',
            "Blocked",
            60.0,
        )
    return _unlimited(case) if case.seen.missing else None


def _unlimited(case: Case) -> Wait:
    names = " and ".join(case.seen.missing)
    return Wait(
        "ControllerMissing",
        f"cannot limit {names} of {case.name}: there is no cgroup controller for it here: "
        f"{remedy(case.seen.missing)}",
        "Blocked",
        60.0,
    )


def _conflict(case: Case, holder: ContainerState) -> ContainerPlan:
    if not case.spec.adopt or case.facts.former_id not in (None, holder.id):
        return Wait(
            "OwnershipConflict",
            f"a container {case.name} that isn't ours is there already: set adopt: true, and it is "
            "set aside and put back at removal; or rename it",
            "Blocked",
            10.0,
        )
    park = Park(name=case.name, reason="adopt what has our name", id=holder.id)
    return Act((*_preparations(case, park.reason, holder), park), ("name",))


def _make(
    case: Case, reason: str, fields: tuple[str, ...], old: ContainerState | None = None
) -> ContainerPlan:
    """Images and a rehearsal first, so that what runs goes on until its successor can be made."""
    actions = _preparations(case, reason, old)
    actions += [_remove(case, one, reason) for one in case.seen.inits.values()]
    actions += [_take_away(case, old, reason)] if old is not None else []
    actions.append(Create(name=case.name, reason=reason, is_disruptive=False))
    return Act(tuple(actions), fields, drift=not case.replugged)


def _preparations(case: Case, reason: str, old: ContainerState | None) -> list[ContainerAction]:
    """List what can be done while `old` runs on."""
    images = dict.fromkeys(
        [case.spec.image, *(init.image for init in case.spec.init_containers if init.image)]
    )
    actions: list[ContainerAction] = [
        _remove(case, one, "its rehearsal was cut") for one in case.seen.trials
    ]
    actions += [
        EnsureImage(name=case.name, reason=reason, is_disruptive=False, image=image)
        for image in images
    ]
    if old is not None and old.state in ("running", "paused") and not old.broken:
        rehearse = Rehearse(name=case.name, reason=reason, is_disruptive=False, id=old.id)
        actions.append(rehearse)
    return actions


def _take_away(case: Case, one: ContainerState, reason: str) -> ContainerAction:
    """Have it give way to its successor; but what was adopted as it was is its owner's, and only
    set aside.
    """
    if one.id == case.facts.former_id:
        return Park(name=case.name, reason=reason, id=one.id)
    if _broken(one) or case.seen.retired is not None:  # then this one has never started
        return _remove(case, one, reason)
    paused = one.state == "paused"
    return Retire(
        name=case.name, reason=reason, is_disruptive=not case.ours, id=one.id, paused=paused
    )


def _remove(case: Case, one: ContainerState, reason: str) -> Remove:
    return Remove(
        name=case.name, reason=reason, is_disruptive=not case.ours, id=one.id, paused=one.state == "paused"
    )  # fmt: skip


def _done_with(case: Case, strays: Sequence[ContainerState]) -> Act[ContainerAction] | None:
    actions = tuple(_remove(case, one, f"{one.name} is done with") for one in strays)
    return Act(actions, drift=False) if actions else None


def _left(case: Case) -> list[ContainerState]:
    """Containers that are of no use once it has ended for good and is gone, or can't be read any
    more; also itself, where it gave way half.
    """
    seen, main = case.seen, case.seen.main
    aside = [one for one in (seen.retired, main) if one is not None and one.name != case.name]
    return [*seen.inits.values(), *seen.trials, *aside]


def _strays(case: Case, main: ContainerState) -> list[ContainerState]:
    """Containers that nothing waits for any more: init containers, trials, and what gave way."""
    rests = case.spec.state == "stopped" or case.spec.schedule is not None
    started = main.state != "created" or rests
    waited = (
        []
        if started
        else [init.name for init in case.spec.init_containers[case.inits_done(main) :]]
    )
    strays = [one for name, one in case.seen.inits.items() if name not in waited]
    retired = [case.seen.retired] if case.seen.retired is not None and started else []
    return [*strays, *case.seen.trials, *retired]


def _differs(case: Case, main: ContainerState) -> tuple[str, tuple[str, ...]] | None:
    """Reason to replace `main`, and the fields that differ. None if it can stay."""
    if main.labels.get(SPEC) != case.label:
        if case.replugged:
            return f"{', '.join(case.replugged)} is another node now", ()
        fields = ("env_files",) if case.spec.env_files else ()
        older = " or with an older secret" if case.desired.secrets else ""
        return f"it was made from another spec{older}", fields
    if _broken(main):
        return "it is broken", ("state",)
    made = case.facts.made or {}
    watched = [name for name in WATCHED if name in case.spec.model_fields_set and name in made]
    differing = tuple(name for name in watched if made[name] != main.config.get(name))
    return (f"{', '.join(differing)} differs", differing) if differing else None


def _broken(main: ContainerState) -> bool:
    return main.broken or main.state in ("removing", "unknown")
