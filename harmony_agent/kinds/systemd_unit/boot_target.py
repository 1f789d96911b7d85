"""Tells where a unit is enabled by a target that its manager never reaches. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from harmony_agent.core.actions import Converged, Plan
from harmony_agent.kinds.systemd_unit.actions import UnitAction
from harmony_agent.kinds.systemd_unit.facts import wanted_files
from harmony_agent.kinds.systemd_unit.policy import settings
from scores.systemd_unit import SystemdUnit

_PULLED_BY: Final = frozenset({"WantedBy", "RequiredBy", "UpheldBy"})
_SYSTEM_ONLY: Final = frozenset(
    f"{name}.target"
    for name in ("multi-user", "graphical", "network", "network-online", "local-fs", "sysinit")
)
"""Targets that a user's manager doesn't have."""


def told(spec: SystemdUnit, plan: Plan[UnitAction]) -> Plan[UnitAction]:
    """Say with what is as wanted that no start of this user's manager starts it by its links."""
    if not (isinstance(plan, Converged) and spec.enabled and not plan.reason):
        return plan
    found = [pair for text in wanted_files(spec).values() for pair in settings(text)]
    targets = {word for keys, words in found if keys & _PULLED_BY for word in words}
    if not targets or not targets <= _SYSTEM_ONLY:
        return plan
    text = (
        f"{', '.join(sorted(targets))} is not there for a user's manager, and its links start "
        f"nothing at boot: write WantedBy=default.target in {spec.name}"
    )
    return replace(plan, reason="TargetMissing", message=text)
