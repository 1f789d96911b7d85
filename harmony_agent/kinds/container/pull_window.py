"""Container: the part of the day in which images are pulled. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from harmony_agent.core.errors import Transient
from scores.container_values import window_minutes

_LONGEST: Final = 600.0
"""Seconds to the next look: the clock may be set, and the time zone change."""


def seconds_open(window: str, now: datetime) -> float:
    """Seconds until the window ends, by the clock on the wall; 0 where it isn't open."""
    begin, end = _moments(window, now)
    return (end - now).total_seconds() if begin <= now else 0.0


def _moments(window: str, now: datetime) -> tuple[datetime, datetime]:
    """Begin and end of the window that is open, or is the next."""
    first, last = window_minutes(window)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    length = timedelta(minutes=(last - first) % (24 * 60))
    begins = [midnight + timedelta(days=day, minutes=first) for day in (-1, 0, 1)]
    begin = next(begin for begin in begins if now < begin + length)
    return begin, begin + length


def closed(window: str, image: str, now: datetime) -> Transient:
    """The error of a pull that has to wait."""
    begin, _ = _moments(window, now)
    text = f"pulls {image} from {window.partition('-')[0]} on, by the device's clock; what runs goes on"
    delay = max(1.0, min((begin - now).total_seconds(), _LONGEST))
    return Transient("PullWindow", text, phase="Progressing", delay=delay)
