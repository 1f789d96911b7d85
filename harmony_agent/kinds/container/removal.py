"""Container: what to do where it is wanted no more. Pure."""

from __future__ import annotations

from harmony_agent.core.actions import Act, Converged, Plan
from harmony_agent.kinds.container.actions import ContainerAction, Remove, Restore
from harmony_agent.kinds.container.facts import ContainerFacts
from harmony_agent.kinds.container.observed import Observed


def removal(name: str, facts: ContainerFacts, seen: Observed | None) -> Plan[ContainerAction]:
    """Plan to remove what is ours, and to put back what was adopted."""
    if seen is None:
        return Converged()
    made = [one for one in (seen.main, seen.retired) if one is not None]
    ours = [*seen.inits.values(), *seen.trials, *made]
    actions: list[ContainerAction] = [
        Remove(name=name, reason="no longer wanted", id=one.id, paused=one.state == "paused")
        for one in ours
        if one.id != facts.former_id
    ]
    if facts.owed:
        actions.append(Restore(name=name, reason="give way to what was there before"))
    return Act(tuple(actions)) if actions else Converged()
