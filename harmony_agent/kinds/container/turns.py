"""Container: looks at schedules, anew only where a time may have come. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, tzinfo

from harmony_agent.core.schedule import Turn, turn
from harmony_agent.kinds.container.facts import Job
from harmony_agent.kinds.container.jobs import calendar_of, zone_of
from harmony_agent.topology.timezones import Timezones
from scores.container import Container
from scores.names import parse_time


class TurnCache:
    """The schedules of one device's containers, by name."""

    def __init__(self, timezones: Timezones, now: Callable[[], datetime]) -> None:
        self._timezones, self._now = timezones, now
        self._held: dict[str, tuple[tuple[str, str, tzinfo], datetime, Turn]] = {}

    def retain(self, names: Collection[str]) -> None:
        """Forget all but `names`."""
        self._held = {name: held for name, held in self._held.items() if name in names}

    def turn(self, name: str, spec: Container, job: Job | None) -> Turn | None:
        """Look at its schedule. None where it has none, or no time zone of that name."""
        calendar = calendar_of(spec)
        zone = self._timezones.zone(zone_of(spec)) if calendar else None
        if zone is None or spec.schedule is None:
            return None
        known = job if job is not None and job.calendar == calendar else Job()
        now, key = self._now(), (calendar, known.handled, zone)
        held = self._held.get(name)
        if (
            held is not None
            and held[0] == key
            and not known.began
            and _stands(held[2], held[1], now)
        ):
            return held[2]
        found = turn(spec.schedule, known.handled, known.began, now.astimezone(zone))
        self._held[name] = key, now, found
        return found


def _stands(found: Turn, since: datetime, now: datetime) -> bool:
    """Tell if nothing has come since, and the clock wasn't set back."""
    if found.due or found.last or found.anew or found.fresh or now < since:
        return False
    return not found.next or now < parse_time(found.next)
