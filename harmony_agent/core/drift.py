"""Drift: the fields that differed, since when, the number of repairs, and if something keeps undoing
them.

Pure. An episode begins when a resource that had converged differs under the same spec. It ends
after `QUIET` seconds without a difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from harmony_agent.core.backoff import CONTENDED
from scores.status import Drift

CONTENTION_REPAIRS: Final = 5
CONTENTION_WINDOW: Final = 600.0
QUIET: Final = 600.0


@dataclass(slots=True)
class DriftEpisode:
    """The drift of one resource. Times are monotonic seconds, and wire times where they are
    shown.
    """

    first_seen: str
    last_seen: str
    fields: tuple[str, ...]
    action: str
    last: float
    count: int = 0
    repairs: list[float] = field(default_factory=list)
    held_off: int = 0

    def wait(self, now: float) -> float:
        """Seconds until a repair may be tried: 0 unless contended."""
        recent = [moment for moment in self.repairs if now - moment < CONTENTION_WINDOW]
        if self.action != "contended" and len(recent) < CONTENTION_REPAIRS:
            self.repairs = recent
            return 0.0
        self.action = "contended"  # and stays so until the episode ends: the pace must not fall back between repairs
        self.repairs = self.repairs[-CONTENTION_REPAIRS:]
        return max(0.0, self.repairs[-1] + CONTENDED.delay(self.held_off + 1) - now)

    def repaired(self, now: float) -> None:
        """Note one repair."""
        if self.action == "contended":
            self.held_off += 1
        else:
            self.action = "repaired"
        self.count += 1
        self.repairs.append(now)

    def shown(self) -> Drift:
        """As the status shows it."""
        return Drift(
            count=self.count,
            fields=list(self.fields),
            first_seen=self.first_seen,
            last_seen=self.last_seen,
            action=self.action,  # type: ignore[arg-type]  # one of the three
        )


def seen(
    old: DriftEpisode | None, fields: tuple[str, ...], now: float, wire_now: str, *, report: bool
) -> DriftEpisode:
    """The episode after the resource was found otherwise in `fields`."""
    if old is None or now - old.last > QUIET:
        return DriftEpisode(wire_now, wire_now, fields, "reported" if report else "repaired", now)
    old.last_seen, old.last = wire_now, now
    old.fields = tuple(sorted({*old.fields, *fields}))
    if report:
        old.action = "reported"
    return old
