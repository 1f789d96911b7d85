"""The way back: everything of a unit that is ours goes, and what was there before us is put back.
Pure.

The spec is gone by now: what is ours stands in the record's claims, what was there before in its
facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harmony_agent.core.actions import Act, Converged, Plan
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import OwnershipRecord
from harmony_agent.kinds.systemd_unit import running
from harmony_agent.kinds.systemd_unit.actions import (
    Disable,
    Enable,
    Release,
    Relink,
    Reload,
    ResetFailed,
    Start,
    UnitAction,
)
from harmony_agent.kinds.systemd_unit.facts import UnitFacts, places, read
from harmony_agent.kinds.systemd_unit.plan import ENABLED, MASKED, closed, put_back
from harmony_agent.topology.units import RUNNING, UNREADABLE, Unit

FORMER = "former"
"""Stands in the facts for the files of before us, as a token does for ours."""


def removal(
    record: OwnershipRecord | None, observed: Unit | None, name: str, directory: str, boot: str
) -> Plan[UnitAction]:
    """The next steps towards the unit as it was before us, or towards its absence. `boot` is the id
    of this boot.
    """
    if record is None or observed is None:
        return Converged()
    facts = read(record)
    ours = places(directory, name, record)
    if facts.released:
        return _release(observed, facts)
    lasts = name not in ours or name in facts.former.files or facts.former.fragment != ""
    links = _Links(observed, facts, ours, directory, boot)
    then = _lasting(observed, facts, ours, links) if lasts else _going(observed, facts, ours, links)
    if not isinstance(then, Converged):
        return then
    folder = f"{name}.d"
    hidden = observed.files.get(folder) == UNREADABLE
    if hidden and any(place.startswith(f"{folder}/") for place in ours):
        return closed(folder)
    return _release(observed, facts)


def _release(unit: Unit, facts: UnitFacts) -> Plan[UnitAction]:
    if not unit.backups:
        return Converged()
    note = replace(facts, released=True)
    reason = "all is put back: the files kept aside are needed no more"
    return Act((Release(name=unit.name, reason=reason, is_disruptive=False, note=note),))


@frozen()
class _Links:
    """Plan how the unit's links become what they were before."""

    unit: Unit
    facts: UnitFacts
    ours: frozenset[str]
    directory: str
    boot: str

    @property
    def wanted(self) -> dict[str, str]:
        """The links of before; those that last until the next boot in the same one only."""
        former = self.facts.former
        lasting = f"{self.directory}/"
        links = {
            at: to
            for at, to in former.links.items()
            if at.startswith(lasting) or former.boot == self.boot
        }
        return self._with_own(links)

    def _with_own(self, links: Mapping[str, str]) -> dict[str, str]:
        """Where the unit's own place is ours, what is put back there says whether that is a
        link.
        """
        top, former = (
            f"{self.directory}/{self.unit.name}",
            self.facts.former.files.get(self.unit.name, ""),
        )
        if self.unit.name not in self.ours:
            return dict(links)
        others = {at: to for at, to in links.items() if at != top}
        return others | ({top: former.removeprefix("link:")} if former.startswith("link:") else {})

    def first(self) -> list[UnitAction]:
        """Disabled while its file still says what that means for others."""
        enabled = self.unit.unit_file_state in ENABLED or self.unit.linked
        if (
            "enabled" not in self.facts.touched
            or not enabled
            or self.facts.former.file_state in ENABLED
        ):
            return []
        if self.unit.refusal is not None or not self.unit.links.keys() - self.wanted.keys():
            return []  # what the manager can't read it can't disable: `last` takes the links away
        runtime = self.unit.unit_file_state == "enabled-runtime"
        reason = "it wasn't enabled before"
        return [Disable(name=self.unit.name, reason=reason, is_disruptive=False, runtime=runtime)]

    def last(self) -> list[UnitAction]:
        """Enabled as it was, then every link as it was."""
        if not {"enabled", "masked"} & {*self.facts.touched}:
            return []
        name, wanted = self.unit.name, self.wanted
        actions: list[UnitAction] = []
        if self.facts.former.file_state == "enabled" and self.unit.unit_file_state == "disabled":
            actions.append(Enable(name=name, reason="it was enabled before", is_disruptive=False))
        if actions or (wanted if self.first() else self._with_own(self.unit.links) != wanted):
            reason = "its links were otherwise before"
            actions.append(Relink(name=name, reason=reason, is_disruptive=False, links=wanted))
        return actions


def _going(unit: Unit, facts: UnitFacts, ours: frozenset[str], links: _Links) -> Plan[UnitAction]:
    """The unit came with us and goes with us: stopped first, so that its own ExecStop= is still
    known.
    """
    stopping = running.stop(unit, mine=True)
    if not isinstance(stopping, Converged):
        return stopping
    name = unit.name
    actions = links.first()
    for place in sorted(ours):
        actions += put_back(unit, facts, place)
    actions += links.last()
    if actions or unit.stale:
        actions.append(Reload(name=name, reason="files or links changed", is_disruptive=False))
    if unit.active_state == "failed":
        actions.append(ResetFailed(name=name, reason="the unit goes", is_disruptive=False))
    return Act(tuple(actions)) if actions else Converged()


def _lasting(unit: Unit, facts: UnitFacts, ours: frozenset[str], links: _Links) -> Plan[UnitAction]:
    """The unit was there before us and stays: its files, enablement, mask and state are put
    back.
    """
    name = unit.name
    actions = links.first()
    for place in sorted(ours):
        actions += put_back(unit, facts, place)
    actions += links.last()
    if actions or unit.stale:
        actions.append(Reload(name=name, reason="files or links changed", is_disruptive=False))
    then: Plan[UnitAction] = Converged()
    if "state" in facts.touched:
        then = _state(unit, facts, ours)
    if isinstance(then, Act):
        return Act((*actions, *then.actions), is_restart=then.is_restart)
    return Act(tuple(actions)) if actions else then


def _state(unit: Unit, facts: UnitFacts, ours: frozenset[str]) -> Plan[UnitAction]:
    """Running if it ran before us, and then with the files of before; else stopped."""
    if not facts.former.active:
        return running.stop(unit, mine=True)
    startable = (
        unit.load_state not in ("not-found", "masked") and facts.former.file_state not in MASKED
    )
    if not startable or (unit.active_state in RUNNING and not ours):
        return Converged()
    if unit.active_state in RUNNING and facts.started == facts.former.started != "":
        return Converged()  # what runs has only ever seen the files of before
    tried = facts.started == FORMER
    refused = unit.active_state == "inactive" and False in (unit.condition, unit.assertion)
    if tried and (unit.run not in ("", facts.run) or refused):
        return (
            Converged()
        )  # started once as it was before us: how it fares from there is no longer our matter
    goal = running.Goal(FORMER)
    facts = replace(facts, restart="", reload="", changed=0)
    if unit.active_state in ("inactive", "failed") and not unit.job:
        note = goal.noted(unit, facts)
        return Act((Start(name=unit.name, reason="it ran before", note=note, is_disruptive=False),))
    return running.run(goal, unit, facts, mine=True)
