"""Units as the manager and its log show them. Changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.systemd_unit.facts import read
from harmony_agent.topology.units import Unit, Units
from scores.systemd_unit import SystemdUnit


class Observer:
    """Looks at one manager's units."""

    def __init__(self, units: Units, view: KindView[SystemdUnit]) -> None:
        self._units, self._view = units, view

    async def relist(self) -> Mapping[str, Unit]:
        """All units that are wanted or owned and exist."""
        return await self._units.list_units(self._view.names())

    async def one(self, name: str) -> Unit | None:
        """One unit, fresh. The manager forgets a one-shot that ended while nobody looked: then the
        log is asked.
        """
        unit = await self._units.look(name)
        if (
            unit is None
            or not unit.oneshot
            or unit.active_state != "inactive"
            or unit.invocation
            or unit.job
        ):
            return unit
        facts = read(self._view.record(name))
        if facts.completed or not facts.moment:
            return unit
        return replace(unit, finished=await self._units.finished(name, facts.moment))
