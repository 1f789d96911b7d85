"""Outcomes of a refusal by the updater: again later, or not until the spec changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.topology.updater import UpdaterRefused

_TERMINAL: Final[Mapping[str, str]] = {
    "expired": "UpgradeExpired",
    "attempt-conflict": "AttemptConflict",
    "wrong-device": "WrongDevice",
    "bad-request": "UpdaterRefused",
    "unsupported": "UpdaterUnsupported",
}

_BUSY_SECONDS: Final = 5.0


def outcome(refused: UpdaterRefused) -> Terminal | Transient:
    """The updater's no, as an outcome."""
    reason = _TERMINAL.get(refused.code)
    if reason is not None:
        return Terminal(reason, f"the updater refuses ({refused.code}): {refused}")
    if refused.code == "busy":
        text = "cannot ask the updater now: it serves as many others as it can; asking again soon"
        return Transient("UpdaterBusy", text, delay=_BUSY_SECONDS, phase="Blocked")
    known = {"repair-required": "RepairRequired", "forbidden": "UpdaterForbidden"}
    reason = known.get(refused.code, "UpdaterRefused")
    return Transient(
        reason, f"the updater refuses ({refused.code}): {refused}", delay=60, phase="Blocked"
    )
