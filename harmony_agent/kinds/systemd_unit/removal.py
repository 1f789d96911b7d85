"""The way back: everything of a unit that is ours goes, and what was there before us is put back. Pure.

The spec is gone by now: what is ours stands in the record's claims, what was there before in its facts.
"""

from __future__ import annotations

from dataclasses import replace

from harmony_agent.core.reconcile import Act, Converged, Plan, Record
from harmony_agent.kinds.systemd_unit import running
from harmony_agent.kinds.systemd_unit.actions import (
    Disable,
    Enable,
    Mask,
    Release,
    Reload,
    ResetFailed,
    Start,
    UnitAction,
    Unmask,
)
from harmony_agent.kinds.systemd_unit.facts import UnitFacts, places, read
from harmony_agent.kinds.systemd_unit.plan import ENABLED, MASKED, put_back
from harmony_agent.topology.units import MASK, RUNNING, Unit

FORMER = "former"
"""Stands in the facts for the files of before us, as a token does for ours."""


def removal(record: Record | None, observed: Unit | None, name: str, directory: str) -> Plan[UnitAction]:
    """The next steps towards the unit as it was before us, or towards its absence."""
    if record is None or observed is None:
        return Converged()
    facts = read(record)
    ours = places(directory, name, record)
    if facts.released:
        return _release(observed, facts)
    lasts = name not in ours or name in facts.former.files or facts.former.fragment != ""
    then = _lasting(observed, facts, ours) if lasts else _going(observed, facts, ours)
    return _release(observed, facts) if isinstance(then, Converged) else then


def _release(unit: Unit, facts: UnitFacts) -> Plan[UnitAction]:
    if not unit.kept:
        return Converged()
    note = replace(facts, released=True)
    reason = "all is put back: the files kept aside are needed no more"
    return Act((Release(name=unit.name, reason=reason, disturbs=False, note=note),))


def _going(unit: Unit, facts: UnitFacts, ours: frozenset[str]) -> Plan[UnitAction]:
    """The unit came with us and goes with us: stopped first, so that its own ExecStop= is still known."""
    stopping = running.stop(unit, mine=True)
    if not isinstance(stopping, Converged):
        return stopping
    name = unit.name
    actions: list[UnitAction] = []
    if "enabled" in facts.touched and (unit.linked or unit.unit_file_state in ENABLED):
        runtime = unit.unit_file_state == "enabled-runtime"
        actions.append(Disable(name=name, reason="the unit goes", disturbs=False, runtime=runtime))
    for place in sorted(ours):
        actions += put_back(unit, facts, place)
    if actions or unit.stale:
        actions.append(Reload(name=name, reason="files or links changed", disturbs=False))
    if unit.active_state == "failed":
        actions.append(ResetFailed(name=name, reason="the unit goes", disturbs=False))
    return Act(tuple(actions)) if actions else Converged()


def _lasting(unit: Unit, facts: UnitFacts, ours: frozenset[str]) -> Plan[UnitAction]:
    """The unit was there before us and stays: its files, enablement, mask and state are put back."""
    name = unit.name
    mask = name in ours and "masked" in facts.touched and name not in facts.former.files
    actions: list[UnitAction] = []
    for place in sorted(ours):
        if not (mask and place == name and unit.files.get(place) == MASK):
            actions += put_back(unit, facts, place)
    actions += _links(unit, facts)
    if actions or unit.stale:
        actions.append(Reload(name=name, reason="files or links changed", disturbs=False))
    then: Plan[UnitAction] = Converged()
    if "state" in facts.touched:
        then = _state(unit, facts, ours)
    if isinstance(then, Act):
        return Act((*actions, *then.actions), again=then.again)
    return Act(tuple(actions)) if actions else then


def _links(unit: Unit, facts: UnitFacts) -> list[UnitAction]:
    name, was, now = unit.name, facts.former.file_state, unit.unit_file_state
    actions: list[UnitAction] = []
    if "masked" in facts.touched and now in MASKED and was not in MASKED and name not in facts.former.files:
        runtime = now == "masked-runtime"
        actions.append(Unmask(name=name, reason="it wasn't masked before", disturbs=False, runtime=runtime))
    if "enabled" in facts.touched and was == "enabled" and now != "enabled":
        actions.append(Enable(name=name, reason="it was enabled before", disturbs=False))
    if "enabled" in facts.touched and was in ("disabled", "") and now in ENABLED:
        runtime = now == "enabled-runtime"
        actions.append(Disable(name=name, reason="it wasn't enabled before", disturbs=False, runtime=runtime))
    if "masked" in facts.touched and was == "masked" and now != "masked":
        actions.append(Mask(name=name, reason="it was masked before", disturbs=False))
    return actions


def _state(unit: Unit, facts: UnitFacts, ours: frozenset[str]) -> Plan[UnitAction]:
    """Running if it ran before us, and then with the files of before; else stopped."""
    if not facts.former.active:
        return running.stop(unit, mine=True)
    startable = unit.load_state not in ("not-found", "masked") and facts.former.file_state not in MASKED
    if not startable or (unit.active_state in RUNNING and not ours):
        return Converged()
    tried = facts.started == FORMER
    refused = unit.active_state == "inactive" and False in (unit.condition, unit.assertion)
    if tried and (unit.run not in ("", facts.run) or refused):
        return Converged()  # started once as it was before us: how it fares from there is no longer our matter
    goal = running.Goal(FORMER)
    facts = replace(facts, restart="", reload="", changed=0)
    if unit.active_state in ("inactive", "failed") and not unit.job:
        note = goal.noted(unit, facts)
        return Act((Start(name=unit.name, reason="it ran before", note=note, disturbs=False),))
    return running.run(goal, unit, facts, mine=True)
