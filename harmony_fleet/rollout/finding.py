"""A difference between the fleet and its roster: a stable code, and a safe response to it. Pure.

A finding holds codes, names and digests, never a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Code = Literal[
    "roster-behind",
    "projection-differs",
    "projection-missing",
    "file-changed",
    "not-converged",
    "reverted",
    "missing",
    "unexpected",
    "disabled-running",
    "unmanaged",
    "applied-by-hand",
    "ownership-mismatch",
    "fenced",
    "signature-refused",
    "trust-differs",
    "heartbeat-stale",
    "capability-missing",
    "device-implausible",
    "device-disturbed",
    "paused",
    "rollout-under-way",
    "rollout-stopped",
]


RESPONSES: Final[Mapping[Code, str]] = {
    "roster-behind": "another copy of this home was applied, so apply is refused here. harmony fleet pull takes its "
    "roster; harmony fleet apply --take-over makes this one the fleet's",
    "projection-differs": "look with harmony fleet plan, then harmony fleet apply writes it from the roster",
    "projection-missing": "look with harmony fleet plan, then harmony fleet apply writes it from the roster",
    "file-changed": "the deployment stays as it stands, and the others go on; harmony fleet deployment set NAME "
    "--file PATH takes what the file says now",
    "not-converged": "wait, or see harmony status --resources: the device repairs by itself what it can",
    "reverted": "the device went back by itself to the last generation that was Converged, and stays there: see what failed "
    "with harmony status, mend it, and apply the next generation",
    "missing": "see why with harmony logs; harmony fleet apply where the projection differs too",
    "unexpected": "see who started it; harmony fleet apply stops it where the projection differs, else the agent does",
    "disabled-running": "harmony fleet apply stops it: disabled wins over running",
    "unmanaged": "left alone: it is never adopted, renamed or removed; ask whose it is",
    "applied-by-hand": "left alone: no apply of the roster removes it. harmony fleet adopt DEVICE/DEPLOYMENT takes it in as "
    "it stands; harmony delete takes it off",
    "ownership-mismatch": "left alone, and holds apply up; to own it from now on: harmony fleet apply --take-over",
    "fenced": "somebody else wrote: see harmony status, then apply again with the right roster",
    "signature-refused": "where the projection differs too, harmony fleet apply signs it; else put the key of "
    "harmony fleet key list into [trust] keys there; one that nobody here wrote: see who writes to NATS",
    "trust-differs": "set [trust] keys there as harmony fleet key list shows them, and restart the agent; before a key "
    "is retired every device has to trust its successor",
    "heartbeat-stale": "look at the device and its network; its manifests wait for it",
    "capability-missing": "on the device, harmony-agent check says how to mend it; it gets nothing new until then",
    "device-implausible": "what the device says is impossible or can't be read. It is passed over, and the others go "
    "on. Look at the device, and at who has its credentials",
    "paused": "told, and no failure: it ends by itself in its time, or with harmony resume DEVICE/DEPLOYMENT",
    "rollout-under-way": "some devices wait for their wave: harmony rollout watch DEPLOYMENT carries it on, or harmony fleet "
    "controller",
    "rollout-stopped": "see why with harmony rollout status DEPLOYMENT; then mend the deployment and apply it, or harmony "
    "rollout resume or undo",
    "device-disturbed": "it is undone already; find the workload that does it: harmony status shows what runs there",
}


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One difference. `detail` is made of codes, generations and digests."""

    device: str
    deployment: str
    resource: str
    code: Code
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        place = {
            "device": self.device or None,
            "deployment": self.deployment or None,
            "resource": self.resource or None,
        }
        return {"code": self.code, **place, "detail": self.detail, "response": RESPONSES[self.code]}


def failing(findings: Iterable[Finding]) -> bool:
    """Return whether any is a failure: somebody asked for a pause."""
    return any(finding.code != "paused" for finding in findings)


def codes(findings: Iterable[Finding]) -> dict[Code, int]:
    """Count the findings of each code."""
    counted: dict[Code, int] = {}
    for finding in findings:
        counted[finding.code] = counted.get(finding.code, 0) + 1
    return counted
