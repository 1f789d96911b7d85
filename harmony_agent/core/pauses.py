"""Pauses: what is kept as it runs, and for how long. Pure.

A pause is a time that is left at a moment. In the boot of that moment the monotonic
clock alone counts them, so that no jump of the wall clock makes it longer or shorter. After another
boot the wall clock tells what passed meanwhile; where it went back, nothing passed, and the
monotonic clock counts the rest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from harmony_agent.core.changes import Moment
from harmony_agent.core.frozen import frozen
from scores.names import format_time, parse_time
from scores.pause import DEVICE, MAX_SECONDS

_MICRO = 1e6
_NEVER = 250_000_000_000
"""Seconds since 1970 that a time of the wire can still spell."""
_SAME = 5.0
"""Seconds by which the end that is shown may be wrong."""


@frozen()
class Pause:
    """One pause. `scope` is a deployment's name, or `DEVICE` for all of them."""

    scope: str
    left: int
    """microseconds"""
    at: Moment
    until: str = ""
    """the end by the wall clock, for people"""

    def after(self, now: Moment) -> float:
        """Seconds that are left, in the life of one agent."""
        return (self.left - max(0, now.monotonic - self.at.monotonic)) / _MICRO

    def after_start(self, now: Moment) -> float:
        """Seconds that are left when an agent starts."""
        if self.at.boot and self.at.same_boot(now):
            return self.after(now)
        return (self.left - max(0, now.wall - self.at.wall)) / _MICRO


def paused(scope: str, seconds: float, now: Moment) -> Pause:
    """A pause that begins now."""
    left = min(seconds, MAX_SECONDS)
    return Pause(scope, int(left * _MICRO), now, _until(left, now))


def anew(pause: Pause, left: float, now: Moment) -> Pause:
    """The same pause counted from now. The end that is shown moves only where the clock did."""
    made = paused(pause.scope, left, now)
    wrong = abs(_seconds(made.until) - _seconds(pause.until)) if pause.until else _SAME
    return made if wrong >= _SAME else replace(made, until=pause.until)


def of(pauses: Iterable[Pause], deployment: str) -> Pause | None:
    """The pause that holds a deployment: its own or the device's, whichever ends later."""
    holding = [pause for pause in pauses if pause.scope in (deployment, DEVICE)]
    return max(holding, key=lambda pause: pause.until, default=None)


def _until(left: float, now: Moment) -> str:
    end = min(max(now.wall / _MICRO + left, 0.0), _NEVER)
    return format_time(datetime.fromtimestamp(end, UTC))


def _seconds(time: str) -> float:
    return parse_time(time).timestamp()
