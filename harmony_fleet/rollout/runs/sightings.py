"""When each schedule was first seen as it is: the key ``schedule.<name>`` of ``task-runs``.

A schedule that is new, enabled or given other times counts from then on, by the server's clock. A
time that had gone by before is never made up for, whoever changed the roster and however.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.roster.model import Schedule
from scores.canonical import NotCanonical, canonical, read
from scores.keys import TASK_RUNS
from scores.names import format_time, parse_time

_LARGEST: Final = 1024


async def first_seen(store: Store, schedules: Sequence[Schedule]) -> dict[str, datetime]:
    """The time of each schedule, by name. Writes those that are new, and forgets those that are
    gone. Raises Conflict where another controller does the same: look again.
    """
    held = await store.entries(TASK_RUNS, ["schedule.*"])
    keys = {f"schedule.{schedule.name}": schedule for schedule in schedules}
    for key in held.keys() - keys.keys():
        await store.purge(TASK_RUNS, key, held[key].revision)
    return {
        schedule.name: _since(held.get(key), schedule) or await _see(store, key, schedule)
        for key, schedule in keys.items()
    }


async def _see(store: Store, key: str, schedule: Schedule) -> datetime:
    now = await store.now()
    there = await store.get(TASK_RUNS, key)  # a key that was purged has a revision still
    value = canonical({**_times(schedule), "since": format_time(now)})
    await store.put(TASK_RUNS, key, value, there.revision)
    return now


def _since(entry: Entry | None, schedule: Schedule) -> datetime | None:
    """None where the schedule was another, or the value can't be read."""
    try:
        value = read(entry.value or b"", _LARGEST) if entry is not None else None
        if not isinstance(value, dict) or _times(schedule).items() - value.items():
            return None
        return parse_time(str(value.get("since")))
    except (NotCanonical, ValueError, TypeError):
        return None


def _times(schedule: Schedule) -> dict[str, str | bool]:
    return {"cron": schedule.cron, "enabled": schedule.enabled}
