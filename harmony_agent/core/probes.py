"""Thresholds of a probe: what a row of successes and failures says. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from scores.probes import Probe


@dataclass(slots=True)
class ProbeCounter:
    """The state of one probe of one instance: `good` flips after as many results in a row as its
    threshold says.
    """

    probe: Probe
    good: bool
    row: int = 0
    """results in a row that speak against `good`"""
    why: str = ""
    """what the last failure said"""

    def count(self, failure: str) -> bool:
        """Count one result ("" is a success); returns whether `good` flipped."""
        self.why = failure
        if (failure == "") == self.good:
            self.row = 0
            return False
        self.row += 1
        if self.row < (self.probe.failure_threshold if self.good else self.probe.success_threshold):
            return False
        self.good, self.row = not self.good, 0
        return True
