"""Make a `topology.units.Unit` from the answers of the manager and the disk.

No I/O but a look at the clock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, Final

from harmony_agent.adapters.systemd.unit_files import OnDisk
from harmony_agent.topology.units import Refusal, Unit

RESTED_AFTER: Final = 300.0
"""Seconds after which conditions that didn't hold are worth another start."""
_SINCE: Final = {
    "active": "ActiveEnterTimestamp",
    "reloading": "ActiveEnterTimestamp",
    "refreshing": "ActiveEnterTimestamp",
    "activating": "InactiveExitTimestamp",
    "deactivating": "ActiveExitTimestamp",
}
_STEPS: Final = (
    *("ExecCondition", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPre", "ExecStopPost"),
    *("ExecMount", "ExecUnmount", "ExecActivate", "ExecDeactivate"),
)
"""Settings whose commands aren't the main process."""
Row = tuple[str, ...]
"""A row of the manager's list: load, active and sub state, object path, job id and job type.

Empty for a template.
"""


def unit_of(
    name: str,
    row: Row,
    disk: OnDisk,
    state: str,
    seen: Mapping[str, Any],
    *,
    enabled_by: str = "",
    refusal: Refusal | None = None,
) -> Unit | None:
    """Combine the observations into a `Unit`. None if nothing of the unit exists."""
    exists = (
        disk.files
        or disk.backups
        or disk.linked
        or state
        or refusal
        or (row and (row[0] != "not-found" or row[1] != "inactive"))
    )
    if not exists:
        return None
    if not row:
        return Unit(
            name,
            disk.files,
            disk.backups,
            disk.linked,
            disk.links,
            enabled_by,
            state,
            refusal,
            load_state="",
        )
    checked, asserted = (
        seen.get("ConditionTimestampMonotonic", 0),
        seen.get("AssertTimestampMonotonic", 0),
    )
    main_exit, left = (
        seen.get("ExecMainExitTimestampMonotonic", 0),
        seen.get("ActiveExitTimestampMonotonic", 0),
    )
    now = time.monotonic() * 1e6
    invocation = bytes(seen.get("InvocationID", b"")).hex()
    exit_status, step = _last_end(seen)
    once = seen.get("Type") == "oneshot" and not seen.get("RemainAfterExit")
    return Unit(
        name=name,
        files=disk.files,
        backups=disk.backups,
        linked=disk.linked,
        links=disk.links,
        enabled_by=enabled_by,
        unit_file_state=state,
        refusal=refusal,
        load_state=row[0],
        active_state=row[1],
        sub_state=row[2],
        id=seen.get("Id", ""),
        fragment=seen.get("FragmentPath", ""),
        loaded_dropins=tuple(seen.get("DropInPaths", ())),
        loaded_file_state=seen.get("UnitFileState", "") if seen.get("Id") == name else "",
        stale=bool(seen.get("NeedDaemonReload")),
        condition=bool(seen.get("ConditionResult")) if checked else None,
        assertion=bool(seen.get("AssertResult")) if asserted else None,
        rested=bool(checked) and now - max(checked, asserted) > RESTED_AFTER * 1e6,
        invocation=invocation if invocation.strip("0") else "",
        result=seen.get("Result", "success"),
        job=row[5] if row[4] != "0" else "",
        oneshot=once,
        ended=0 < main_exit <= (left or main_exit),
        exit_status=exit_status,
        step=step,
        timed=any(one.endswith(".timer") for one in seen.get("TriggeredBy", ())),
        can_reload=bool(seen.get("CanReload")),
        main_pid=seen.get("MainPID", 0),
        restarts=seen.get("NRestarts", 0),
        since=seen.get(_SINCE.get(row[1], "InactiveEnterTimestamp"), 0),
        began=seen.get("ExecMainStartTimestampMonotonic", 0)
        or seen.get("InactiveExitTimestampMonotonic", 0),
        changed=seen.get("StateChangeTimestamp", 0),
    )


def _last_end(seen: Mapping[str, Any]) -> tuple[int, str]:
    """Return the status, or 128 and the signal's number, of the command that failed first in the
    last run, and its setting; that of the main process, and "", where none failed.
    """
    main = (
        seen.get("ExecMainExitTimestampMonotonic", 0),
        _status(seen.get("ExecMainCode", 0), seen.get("ExecMainStatus", 0)),
        "",
    )
    others = [
        (command[6], _status(command[8], command[9]), step)
        for step in _STEPS
        for command in seen.get(step, ())
        if not command[2]  # its failure is ignored
    ]
    failed = [end for end in (main, *others) if end[1]]
    _, status, step = min(failed, default=main)
    return status, step


def _status(code: int, status: int) -> int:
    return int(status) + (128 if code in (os.CLD_KILLED, os.CLD_DUMPED) else 0)
