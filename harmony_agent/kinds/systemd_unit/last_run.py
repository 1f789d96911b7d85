"""Judge a job by its last run: a one-shot, or what a timer starts. Pure.

It is never started again for that: its timer, or who started it, does so.
"""

from __future__ import annotations

from datetime import UTC, datetime

from harmony_agent.core.actions import Converged
from harmony_agent.core.changes import Moment
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.systemd_unit.facts import wanted_files
from harmony_agent.kinds.systemd_unit.failure import how
from harmony_agent.topology.units import Unit
from scores.names import format_time
from scores.systemd_unit import SystemdUnit


def judge(
    desired: Desired[SystemdUnit], record: OwnershipRecord | None, unit: Unit, boot: str
) -> Converged:
    """Say if the last run of a unit failed whose run is left alone."""
    job = unit.oneshot or unit.timed
    if unit.active_state != "failed" or not job or desired.spec.ignore_failure:
        return Converged()
    if record is not None and _ran_other_files(desired, record, unit, boot):
        return Converged()
    return failed(unit)


def failed(unit: Unit) -> Converged:
    """Say how and when the last run failed."""
    text = f"the last run of {unit.name} failed ({how(unit)}) at {since(unit)}: see its log"
    return Converged("Degraded", "JobFailed", text)


def since(unit: Unit) -> str | None:
    """The time at which its active state was entered, as the wire writes one; None before that."""
    return format_time(datetime.fromtimestamp(unit.since / 1e6, UTC)) if unit.since else None


def _ran_other_files(
    desired: Desired[SystemdUnit], record: OwnershipRecord, unit: Unit, boot: str
) -> bool:
    """Return whether its files were changed since: then the next run tells if they are better."""
    if wanted_files(desired.spec) and record.reached.partition("+")[0] != desired.digest:
        return True
    changed = Moment.parse(record.changed)
    return changed is not None and bool(unit.began) and Moment(boot, unit.began, 0).before(changed)
