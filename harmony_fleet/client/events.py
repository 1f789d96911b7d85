"""Events: what changed between two statuses of a device, and whether it is heard. `EventLog` is fed
and does no I/O; `stored` and `coming` feed it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from harmony_fleet.client.feed import feeding, keys_of, read_all
from harmony_fleet.client.watch import Change, to_change
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import STALE_AFTER
from scores.keys import ACTUAL, HEARTBEAT, INFO, DeploymentKey
from scores.names import format_time
from scores.status import SETTLED, DeploymentStatus, DeviceInfo, Heartbeat, ResourceStatus

EventType = Literal[
    "deployment",
    "resource",
    "drift",
    "rejected",
    "unreadable",
    "gone",
    "paused",
    "resumed",
    "silent",
    "heard",
    "rebooted",
    "agent",
]
_WATCHED: Final = (ACTUAL, HEARTBEAT, INFO)
_LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Event:
    """One change. `at` is the server's time; names and messages are the device's own words.

    `before` and `after` are phases, or versions of the agent; "" where there is none.
    """

    event: EventType
    at: datetime | None
    device: str
    deployment: str = ""
    resource: str = ""
    generation: int | None = None
    before: str = ""
    after: str = ""
    reason: str = ""
    message: str = ""

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        return {
            "event": self.event,
            "at": format_time(self.at) if self.at is not None else None,
            "device": self.device,
            "deployment": self.deployment,
            "resource": self.resource,
            "generation": self.generation,
            "before": self.before,
            "after": self.after,
            "reason": self.reason,
            "message": self.message,
        }


Told = Change[DeploymentStatus]


def status_events(old: Told | None, new: Told) -> Iterator[Event]:
    """Events between two looks at one key; of a first look those that somebody should see."""
    place = (new.at, new.device, new.deployment)
    if new.value is None:
        if old is None or (old.value, old.problem) != (None, new.problem):
            yield Event("unreadable" if new.problem else "gone", *place, reason=new.problem)
        return
    before, told = old.value if old is not None else None, new.value
    refused = told.rejected
    if refused is not None and refused != (before.rejected if before is not None else None):
        fields = ", ".join(f"{item.field}: {item.code}" for item in refused.errors)
        yield Event(
            "rejected", *place, generation=refused.generation, reason=refused.reason, message=fields
        )
    yield from resource_events(before, new)
    pause, last = told.paused, before.paused if before is not None else None
    if pause != last:
        kind: EventType = "resumed" if pause is None else "paused"
        yield Event(kind, *place, message=f"until {pause.until}" if pause is not None else "")
    if before is None or _judged(before) != _judged(told):
        yield Event(
            "deployment",
            *place,
            generation=told.generation,
            before=before.phase if before is not None else "",
            after=told.phase,
            reason=told.reason,
            message=told.message,
        )


def _judged(told: DeploymentStatus) -> tuple[object, ...]:
    return told.phase, told.reason, told.generation


def resource_events(before: DeploymentStatus | None, new: Told) -> Iterator[Event]:
    """Events of the resources alone. Of those that are settled at a first look there is nothing to
    say.
    """
    old = before.resources if before is not None else {}
    now = new.value.resources if new.value is not None else {}
    for key in sorted(old.keys() | now.keys()):
        was, told = old.get(key), now.get(key)
        place = (new.at, new.device, new.deployment, key)
        phase = was.phase if was is not None else ""
        if told is None:
            yield Event("resource", *place, before=phase, after="gone")
            continue
        generation = told.generation
        if _drifted(was, told) and told.drift is not None:
            fields = ", ".join(told.drift.fields)
            message = f"{told.drift.count} times: {fields}"
            yield Event("drift", *place, generation, "", told.drift.action, "", message)
        settled = told.phase in SETTLED and not told.reason
        changed = not settled if was is None and before is None else was is None or (
            (was.phase, was.reason) != (told.phase, told.reason)
        )  # fmt: skip
        if changed:
            yield Event(
                "resource", *place, generation, phase, told.phase, told.reason, told.message
            )


def _drifted(was: ResourceStatus | None, told: ResourceStatus) -> bool:
    seen = was.drift if was is not None else None
    return told.drift is not None and (
        seen is None or (seen.count, seen.action) != (told.drift.count, told.drift.action)
    )


class EventLog:
    """Feed it entries of ``actual-state``, ``device-heartbeat`` and ``device-info``; it says what is
    new in each.
    """

    def __init__(self) -> None:
        self._statuses: dict[DeploymentKey, Told] = {}
        self._infos: dict[str, DeviceInfo] = {}
        self._heard: dict[str, datetime] = {}
        self._silent: set[str] = set()

    def feed(self, entry: Entry) -> list[Event]:
        """Events of one entry; the same entry again has none."""
        if entry.bucket == ACTUAL:
            return self._status(to_change(entry, DeploymentStatus))
        if entry.bucket == HEARTBEAT:
            return self._beat(to_change(entry, Heartbeat))
        return self._info(to_change(entry, DeviceInfo))

    def _status(self, new: Told) -> list[Event]:
        key = DeploymentKey(new.device, new.deployment)
        old = self._statuses.get(key)
        if old is not None and old.revision == new.revision and old.at == new.at:
            return []
        self._statuses[key] = new
        return list(status_events(old, new))

    def _beat(self, new: Change[Heartbeat]) -> list[Event]:
        if new.at is None or (new.value is None and not new.problem):
            self._heard.pop(new.device, None)
            self._silent.discard(new.device)
            return []
        back = new.device in self._silent and new.at > self._heard[new.device]
        self._heard[new.device] = new.at
        self._silent -= {new.device} if back else set()
        return [Event("heard", new.at, new.device)] if back else []

    def _info(self, new: Change[DeviceInfo]) -> list[Event]:
        old, told = self._infos.get(new.device), new.value
        if told is None:
            return []
        self._infos[new.device] = told
        if old is None:
            return []
        found = [Event("rebooted", new.at, new.device)] if old.boot_id != told.boot_id else []
        if old.agent_version != told.agent_version:
            before, after = old.agent_version, told.agent_version
            found.append(Event("agent", new.at, new.device, before=before, after=after))
        return found

    def look(self, now: datetime) -> list[Event]:
        """Devices that fell silent by `now`, the server's time: each is told once."""
        late = [
            (heard, name)
            for name, heard in self._heard.items()
            if name not in self._silent and now - heard > STALE_AFTER
        ]
        self._silent |= {name for _, name in late}
        return [Event("silent", heard + STALE_AFTER, name) for heard, name in sorted(late)]


def _when(event: Event) -> tuple[float, str]:
    return event.at.timestamp() if event.at is not None else 0.0, event.device


async def stored(
    store: Store, log: EventLog, device: str | None, deployment: str | None
) -> list[Event]:
    """Events that the buckets still tell, the oldest first: they hold the newest status of each."""
    entries = await read_all(store, keys_of(_WATCHED, device, deployment))
    found = [event for entry in entries for event in log.feed(entry)]
    silent = log.look(await store.now()) if entries else []
    return sorted([*found, *silent], key=_when)


async def coming(
    store: Store, log: EventLog, device: str | None, deployment: str | None
) -> AsyncGenerator[Event, None]:
    """Each event from now on, without end."""
    async with feeding(store, keys_of(_WATCHED, device, deployment)) as feed:
        while True:
            for entry in await feed.next(_LOOK_SECONDS):
                for event in log.feed(entry):
                    yield event
            for event in await _silent(store, log):
                yield event


async def _silent(store: Store, log: EventLog) -> list[Event]:
    """While the connection is lost nobody can be heard, and nobody is to blame."""
    return log.look(await store.now()) if store.connected else []
