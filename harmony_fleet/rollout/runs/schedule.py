"""Next run of a schedule and its id: the same for every controller, so that only one begins it.

Pure.
"""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from typing import Final

from cronsim import CronSim

from harmony_fleet.manifests.duration import seconds
from harmony_fleet.rollout.runs.plan import Request
from harmony_fleet.roster.model import Schedule
from scores.names import format_time

GRACE: Final = timedelta(minutes=15)
"""Longest delay of a run. A run that was missed for longer waits for the schedule's next time."""


def due(schedule: Schedule, now: datetime) -> datetime | None:
    """The time that has come, not longer ago than `GRACE`. `now` is the server's, in UTC."""
    if not schedule.enabled:
        return None
    last = next(CronSim(schedule.cron, now + timedelta(microseconds=1), reverse=True), None)
    return last if last is not None and now - last <= GRACE else None


def request(schedule: Schedule, lineage: str, at: datetime) -> Request:
    """Return the request of a schedule for the time `at`."""
    uid = uuid.uuid5(uuid.UUID(lineage), f"{schedule.name} {format_time(at)}")
    span = timedelta(seconds=seconds(schedule.deadline) or 0)
    return Request(
        str(uid), lineage, span, schedule.max_unavailable, schedule.canary, schedule.name
    )
