"""Tell which times of a schedule have come, which were missed, and which is next. Pure.

A time is begun within a minute, or it is missed. A clock that is set forward passes times without
coming to them: they are missed. One that is set back passes some again: they aren't begun again,
unless it was set back by more than an hour; then the schedule begins anew.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from harmony_agent.core.frozen import frozen
from scores.names import format_time, parse_time
from scores.schedule import times_after, times_before

LATE: Final = timedelta(minutes=1)
BACK: Final = timedelta(hours=1)
MOST: Final = 100
"""So many missed times are counted at once."""


@frozen()
class Turn:
    """A look at a schedule; times as the wire writes them, "" where there is none.

    `due` is the time whose run is to begin now. `passed` counts times before it that were missed,
    and `last` is the latest of them. `fresh`: a run that was begun for its time is no more than a
    minute late. `anew`: nothing is known of what was before this moment.
    """

    due: str = ""
    passed: int = 0
    last: str = ""
    next: str = ""
    fresh: bool = False
    anew: str = ""


def turn(cron: str, handled: str, began: str, now: datetime) -> Turn:
    """Look at the schedule `cron` at `now`, which is in the schedule's time zone.

    `handled` is the latest time that was dealt with, `began` the one of a run whose end isn't
    recorded.
    """
    fresh = bool(began) and abs(now - parse_time(began)) <= LATE
    since = parse_time(handled).astimezone(now.tzinfo) if handled else None
    if since is None or since - now > BACK:
        return Turn(next=_next(cron, now), fresh=fresh, anew=format_time(now))
    come = list(islice(takewhile(lambda time: time <= now, times_after(cron, since)), MOST + 1))
    if len(come) > MOST:
        latest = next(times_before(cron, now + timedelta(seconds=1)))
        come = [*come[: MOST - 1], latest]
    upcoming = _next(cron, max(now, since))
    if not come:
        return Turn(next=upcoming, fresh=fresh)
    due = format_time(come.pop()) if now - come[-1] <= LATE else ""
    last = format_time(come[-1]) if come else ""
    return Turn(due, len(come), last, upcoming, fresh)


def _next(cron: str, moment: datetime) -> str:
    found = next(iter(times_after(cron, moment)), None)
    return format_time(found) if found is not None else ""
