"""From what is wanted of a unit and how it stands to the next steps. Pure.

In order: files, mask, enablement (all of them on disk), one reload, then what runs.
"""

from __future__ import annotations

from dataclasses import replace

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.systemd_unit import failure, last_run, running
from harmony_agent.kinds.systemd_unit.actions import (
    Disable,
    Enable,
    Keep,
    Mask,
    Note,
    Reload,
    Remove,
    Restore,
    UnitAction,
    Unmask,
    Write,
)
from harmony_agent.kinds.systemd_unit.facts import (
    OTHER_FILES,
    UnitFacts,
    as_wanted,
    digest_of,
    files_token,
    loaded,
    minds_mask,
    places,
    read,
    wanted_files,
)
from harmony_agent.topology.units import MASK, OTHER, RUNNING, UNREADABLE, Refusal, Unit
from scores.systemd_unit import SystemdUnit

ENABLED = frozenset({"enabled", "enabled-runtime"})
MASKED = frozenset({"masked", "masked-runtime"})
NOT_ENABLEABLE = frozenset({"static", "generated", "transient", "indirect", "alias"})
_WAY_ON = {
    "generated": "a generator made it, as from an init script or fstab: enable it there (for an "
    "init script `update-rc.d`), or leave enabled out",
    "transient": "a program made it while it runs: leave enabled out",
    "alias": "this is another name of a unit: use that unit's own name",
    "indirect": "its [Install] section only names others by Also=: enable those",
}
"""What helps by the state of a unit file that can't be enabled."""


def plan(
    desired: Desired[SystemdUnit],
    record: OwnershipRecord | None,
    observed: Unit | None,
    directory: str,
    boot: str,
) -> Plan[UnitAction]:
    """The next steps towards `desired`. `record` is what the ledger shows as ours."""
    spec = desired.spec
    unit = observed or Unit(spec.name)
    ours = places(directory, spec.name, record)
    mine = record is not None and f"unit:{spec.name}" in record.claims
    facts = read(record)
    readable = ours - {place for place, stood in facts.former.files.items() if stood == UNREADABLE}
    blocked = _occupied(spec, unit, readable) or _not_found(spec, unit, ours)
    if blocked is not None:
        return blocked
    actions, fields = files(spec, unit, facts, ours, directory)
    for step, field in (_masking(spec, unit, mine=mine), _enablement(spec, unit, mine=mine)):
        actions += [step] if step is not None else []
        fields += [field] if field else []
    outdated = _outdated(spec, unit, directory)
    if actions or outdated:
        fields += [] if fields else [outdated]
        actions.append(Reload(name=spec.name, reason="files or links changed", is_disruptive=False))
    goal = running.Goal(
        files_token(spec),
        desired.restart_token,
        desired.reload_token,
        boot,
        ignore_failure=spec.ignore_failure,
    )
    if record is None and unit.active_state in RUNNING and as_wanted(spec, unit, directory):
        facts = replace(facts, started=goal.files, restart=goal.restart, reload=goal.reload)
    if any(isinstance(action, Write) for action in actions) and _was_loaded(
        spec, unit, facts, goal
    ):
        # What runs may have been started with the drifted files. Noted first: the restart must
        # survive a crash.
        facts = replace(facts, started=OTHER_FILES)
        actions.insert(
            0,
            Note(
                name=spec.name, reason="drifted files were loaded", note=facts, is_disruptive=False
            ),
        )
    then = (
        last_run.judge(desired, record, unit, boot)
        if spec.wanted_state == "none"
        else _run(spec, goal, unit, facts, directory, mine=mine, settled=not actions)
    )
    return _together(actions, fields, then, spec, unit)


def _together(
    actions: list[UnitAction],
    fields: list[str],
    then: Plan[UnitAction],
    spec: SystemdUnit,
    unit: Unit,
) -> Plan[UnitAction]:
    """The steps on disk, and then what the run asks for."""
    if isinstance(then, Act):
        return Act(
            (*actions, *then.actions),
            tuple(dict.fromkeys((*fields, *then.fields))),
            then.is_restart,
            drift=then.drift or bool(actions),
            for_others=then.for_others and not actions,
        )
    if actions:
        return Act(tuple(actions), tuple(dict.fromkeys(fields)))
    if isinstance(then, Converged) and spec.enabled is not None and unit.refusal is not None:
        return _untold(f"learn whether {unit.name} is enabled", unit, unit.refusal)
    if isinstance(then, Converged) and spec.enabled is False and unit.unit_file_state in ENABLED:
        text = f"cannot disable {unit.name}: {unit.enabled_by} enables it, which isn't the agent's: take that link away"
        return Wait("EnabledElsewhere", text, phase="Blocked", seconds=60.0)
    if isinstance(then, Converged) and spec.enabled and unit.unit_file_state in NOT_ENABLEABLE:
        way_on = _WAY_ON.get(unit.unit_file_state, "give it an [Install] section")
        text = f"cannot enable {unit.name}: its unit file is {unit.unit_file_state}; {way_on}"
        return Wait("NotEnableable", text, phase="Failed", seconds=300.0)
    return then


def _run(
    spec: SystemdUnit,
    goal: running.Goal,
    unit: Unit,
    facts: UnitFacts,
    directory: str,
    *,
    mine: bool,
    settled: bool,
) -> Plan[UnitAction]:
    if spec.wanted_state == "stopped":
        return running.stop(unit, mine=mine)
    if settled and failure.is_refused(unit):
        return failure.invalid(spec, unit, directory)
    return running.run(goal, unit, facts, mine=mine)


def files(
    spec: SystemdUnit, unit: Unit, facts: UnitFacts, ours: frozenset[str], directory: str
) -> tuple[list[UnitAction], list[str]]:
    """Steps that bring every file in place, and take away those of an older spec; with the fields
    that differ.
    """
    actions: list[UnitAction] = []
    fields: list[str] = []
    wanted = wanted_files(spec)
    for place, text in wanted.items():
        stands = unit.files.get(place, "")
        if stands != digest_of(text):
            main = place == spec.name
            write = Write(
                name=spec.name,
                reason=f"{place} differs" if stands else f"{place} is missing",
                is_disruptive=place not in ours
                and bool(stands or (main and _elsewhere(unit, directory))),
                place=place,
                content=text,
                keep=_keep(facts, place, stands),
            )
            actions.append(write)
            fields.append("content" if main else "dropins")
        elif (
            place in ours and stands == facts.former.files.get(place) and stands not in unit.backups
        ):
            why = f"{place} was there before"
            actions.append(
                Keep(name=spec.name, reason=why, is_disruptive=False, place=place, keep=stands)
            )
    for place in sorted(ours - wanted.keys()):
        if not (place == spec.name and spec.masked):
            actions += put_back(unit, facts, place)
    if spec.masked and unit.files.get(spec.name, MASK) != MASK:
        stands = unit.files[spec.name]
        reason = "a unit file stands where the mask goes"
        keep = _keep(facts, spec.name, stands)
        actions.append(
            Remove(
                name=spec.name,
                reason=reason,
                is_disruptive=spec.name not in ours,
                place=spec.name,
                keep=keep,
            )
        )
        fields.append("masked")
    return actions, fields


def put_back(unit: Unit, facts: UnitFacts, place: str) -> list[UnitAction]:
    """The step that puts `place`, which is ours, back as it was before us; none where that is
    done.
    """
    stands = unit.files.get(place, "")
    former = facts.former.files.get(place, "")
    if former and (former in unit.backups or former.startswith("link:")):
        if stands == former:
            return []
        return [
            Restore(
                name=unit.name,
                reason=f"{place} is wanted no more",
                is_disruptive=False,
                place=place,
                former=former,
            )
        ]
    if stands and stands not in (former, OTHER):
        return [
            Remove(
                name=unit.name,
                reason=f"{place} is wanted no more",
                is_disruptive=False,
                place=place,
            )
        ]
    return []


def _keep(facts: UnitFacts, place: str, stands: str) -> str:
    """Digest to back up, if the file at `place` was there before us. "" else."""
    former = facts.former.files.get(place, "")
    return stands if stands == former and stands.startswith("sha256:") else ""


def _elsewhere(unit: Unit, directory: str) -> bool:
    """Return whether the unit exists by a file that isn't in our directory, which one of ours would
    hide.
    """
    return unit.fragment not in ("", f"{directory}/{unit.name}") or (
        not unit.load_state and bool(unit.unit_file_state)
    )


def _masking(spec: SystemdUnit, unit: Unit, *, mine: bool) -> tuple[UnitAction | None, str]:
    state = unit.unit_file_state
    if spec.masked:
        if unit.files.get(spec.name) == MASK:
            return None, ""
        exists = bool(state) or unit.load_state not in ("", "not-found")
        return Mask(
            name=spec.name, reason="the unit is not masked", is_disruptive=exists and not mine
        ), "masked"
    if spec.content is not None or state not in MASKED or not minds_mask(spec):
        return None, ""  # a unit file of ours takes the place of a mask
    runtime = state == "masked-runtime"
    return Unmask(
        name=spec.name, reason="the unit is masked", is_disruptive=not mine, runtime=runtime
    ), "masked"


def _enablement(spec: SystemdUnit, unit: Unit, *, mine: bool) -> tuple[UnitAction | None, str]:
    state = unit.unit_file_state
    if unit.refusal is not None:
        return None, ""  # asked again when the files are put right
    if spec.content is not None and unit.linked and state in ("", *MASKED):
        return None, ""  # its links are there, and count again when its file is
    if spec.enabled is True and state != "enabled" and state not in NOT_ENABLEABLE:
        return Enable(
            name=spec.name, reason=f"the unit is {state or 'not enabled'}", is_disruptive=False
        ), "enabled"
    if spec.enabled is False and state in ENABLED and not unit.enabled_by:
        runtime = state == "enabled-runtime"
        return Disable(
            name=spec.name, reason=f"the unit is {state}", is_disruptive=not mine, runtime=runtime
        ), "enabled"
    return None, ""


def _outdated(spec: SystemdUnit, unit: Unit, directory: str) -> str:
    """The field of which the manager knows something else than what is on disk; "" where there is
    none.

    Changed by hand, or cut short by a crash.
    """
    seen, now = unit.loaded_file_state, unit.unit_file_state
    if not unit.load_state:
        return ""
    stale = unit.stale and not failure.is_refused(unit)
    if stale or not loaded(unit, frozenset(wanted_files(spec)), directory):
        dropins = {f"{directory}/{place}" for place in unit.files if place != unit.name}
        return (
            "dropins"
            if dropins ^ {path for path in unit.loaded_dropins if path.startswith(directory)}
            else "content"
        )
    if unit.refusal is not None:
        return ""
    if (unit.load_state == "masked") != (now in MASKED):
        return "masked"
    known = ENABLED | {"disabled"}
    changed = spec.enabled is not None and seen in known and now in known and seen != now
    return "enabled" if changed else ""


def _was_loaded(spec: SystemdUnit, unit: Unit, facts: UnitFacts, goal: running.Goal) -> bool:
    """Return whether files drifted under a unit that is to run, and the manager has loaded them
    since.
    """
    return (
        spec.wanted_state == "running"
        and unit.active_state in RUNNING
        and not unit.stale
        and not goal.is_other(unit, facts)
    )


def _occupied(spec: SystemdUnit, unit: Unit, ours: frozenset[str]) -> Wait | None:
    at = [
        *wanted_files(spec),
        *([f"{spec.name}.d"] if spec.dropins else []),
        *([spec.name] if spec.masked else []),
    ]
    folder = f"{spec.name}.d"
    inside = spec.dropins or any(place.startswith(f"{folder}/") for place in ours)
    if inside and unit.files.get(folder) == UNREADABLE:
        return closed(folder)
    for place in at:
        if unit.files.get(place) == OTHER or (place == f"{spec.name}.d" and place in unit.files):
            text = f"{place} in the unit directory is neither file nor link: move it away"
            return Wait("PlaceOccupied", text, phase="Blocked", seconds=30.0)
        if unit.files.get(place) == UNREADABLE and place not in ours:
            text = f"cannot read {place}, so that it couldn't be put back: let the agent's user read it, or move it away"
            return Wait("AccessDenied", text, phase="Blocked", seconds=30.0)
    return None


def closed(folder: str) -> Wait:
    """Wait for a directory of drop-ins that only somebody else can open."""
    text = (
        f"cannot read {folder} in the unit directory: give it to the agent's user, or move it away"
    )
    return Wait("AccessDenied", text, phase="Blocked", seconds=30.0)


def _untold(doing: str, unit: Unit, refusal: Refusal) -> Wait:
    """Wait until the manager can tell how the unit's files stand."""
    shut = [place for place, stands in unit.files.items() if stands == UNREADABLE]
    way_on = f": let the agent's user read {', '.join(shut)}" if shut else ""
    text = f"cannot {doing}: {refusal.message}{way_on}"
    return Wait(refusal.reason, text, phase="Blocked", seconds=30.0)


def _not_found(spec: SystemdUnit, unit: Unit, ours: frozenset[str]) -> Wait | None:
    if spec.content is not None or spec.masked or unit.unit_file_state:
        return None
    if unit.refusal is not None:
        known = unit.load_state in ("", "loaded", "masked")
        return None if known else _untold(f"use {spec.name}", unit, unit.refusal)
    if unit.load_state not in ("", "not-found") or (spec.name in ours and spec.name in unit.files):
        return None
    text = (
        f"there is no unit {spec.name} on this device: install what brings it, or give its content"
    )
    return Wait("UnitNotFound", text, phase="Blocked", seconds=30.0)
