"""SystemUpgrade: asks once, then waits for the end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.system_upgrade.actions import RequestUpgrade
from harmony_agent.kinds.system_upgrade.observed import Observed
from harmony_agent.topology.updater import Ask
from scores.status import UpgradeDetail
from scores.system_upgrade import SystemUpgrade

LINGER: Final = 15.0
"""Seconds for which an attempt that ended is still shown after its Score was removed."""
POLL: Final = 2.0
BLOCKED_POLL: Final = 10.0

_REASONS: Final[Mapping[str, str]] = {
    "blocked": "UpgradeBlocked",
    "preflight": "UpgradePreflight",
    "applying": "UpgradeApplying",
    "rebooting": "UpgradeRebooting",
    "verifying": "UpgradeVerifying",
    "failed": "UpgradeFailed",
    "repair-required": "RepairRequired",
}


def plan(
    name: str, desired: Desired[SystemUpgrade] | None, observed: Observed | None, device: str
) -> Plan[RequestUpgrade]:
    """Plan the next actions. The updater's own memory tells all: the ledger's record isn't asked."""
    if desired is None:
        return _let_end(observed)
    if observed is None:
        spec = desired.spec
        ask = Ask(spec.attempt_id, spec.run_uid, device, spec.expires_at)
        return Act(
            (RequestUpgrade(name=name, reason="the updater knows of no such attempt", ask=ask),)
        )
    if observed.attempt is None:
        message = "the updater has lost the journal of this attempt: look at the device, then start another attempt"
        return Wait("AttemptLost", message, "Failed", 60.0)
    return _wait_for(observed.attempt.detail)


def _let_end(observed: Observed | None) -> Plan[RequestUpgrade]:
    """A removed Score's attempt: gone when it has ended and that was shown."""
    if observed is None or observed.attempt is None or observed.over:
        return Converged()
    if observed.attempt.detail.phase == "complete":
        return Wait("", "", "Completed", LINGER)
    plan = _wait_for(observed.attempt.detail)
    return replace(plan, seconds=min(plan.seconds, LINGER)) if isinstance(plan, Wait) else plan


def _wait_for(detail: UpgradeDetail) -> Converged | Wait:
    """Map the updater's phase to a status."""
    if detail.phase == "complete":
        return Converged("Completed")
    reason = _REASONS[detail.phase]
    message = detail.message or detail.reason
    if detail.phase in ("failed", "repair-required"):
        return Wait(reason, message, "Failed", 3600.0)
    if detail.phase == "blocked":
        return Wait(reason, message, "Blocked", BLOCKED_POLL)
    return Wait(reason, message, "Progressing", POLL)
