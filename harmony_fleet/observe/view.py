"""The fleet as its buckets show it, kept up to date entry by entry: what status, a dashboard and
metrics read.

`FleetView` is fed and asked and does no I/O; `keep` feeds it. Ages are JetStream's alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from harmony_fleet.errors import Unreachable
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import STALE_AFTER, to_actual, to_desired
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO, DeploymentKey, parse_deployment_key
from scores.status import DeploymentStatus

Group = Literal["succeeded", "failed", "pending", "held"]
GROUPS: Final[tuple[Group, ...]] = ("succeeded", "failed", "pending", "held")
WATCHED: Final = (DESIRED, ACTUAL, INFO, HEARTBEAT)
RELIST_SECONDS: Final = 60.0
_GROUPS: Final[dict[str, Group]] = {
    **dict.fromkeys(("Failed", "Rejected", "Degraded"), "failed"),
    **dict.fromkeys(("Held", "Fenced"), "held"),
}


@dataclass(frozen=True, slots=True)
class Expected:
    """Desired version at a key, to tell whether a status belongs to it."""

    lineage: str
    generation: int
    removed: bool


@dataclass(frozen=True, slots=True)
class Reported:
    """Status of a deployment, as the device reported it."""

    phase: str
    reason: str
    lineage: str | None
    generation: int
    created: datetime | None
    paused: str = ""
    """the end of the pause that holds it"""


@dataclass(frozen=True, slots=True)
class LastError:
    """The newest of what is wrong with a deployment anywhere."""

    device: str
    phase: str
    reason: str
    at: datetime | None


@dataclass(frozen=True, slots=True)
class DeploymentCounts:
    """A deployment over all its devices."""

    deployment: str
    counts: dict[Group, int]
    last_error: LastError | None

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        last = self.last_error
        reported = (
            {"device": last.device, "phase": last.phase, "reason": last.reason} if last else None
        )
        counts: dict[str, Any] = {group: self.counts[group] for group in GROUPS}
        return {"deployment": self.deployment, **counts, "last_error": reported}


def group_of(expected: Expected | None, reported: Reported | None) -> Group | None:
    """Group of a deployment on a device. None if nothing is desired there and nothing is left."""
    if reported is None:
        return None if expected is None else "pending"
    if reported.phase == "Removed" and (expected is None or expected.removed):
        return None
    if reported.phase in _GROUPS:
        return _GROUPS[reported.phase]
    if expected is None:
        return "succeeded" if reported.phase == "Converged" else "pending"
    current = reported.lineage == expected.lineage and reported.generation >= expected.generation
    return (
        "succeeded"
        if reported.phase == "Converged" and current and not expected.removed
        else "pending"
    )


class FleetView:
    """Feed it entries of the four buckets, in any order; ask it at any time."""

    def __init__(self) -> None:
        self._expected: dict[DeploymentKey, Expected] = {}
        self._reported: dict[DeploymentKey, Reported] = {}
        self._groups: dict[DeploymentKey, Group] = {}
        self._counts: dict[str, Counter[Group]] = {}
        self._devices: set[str] = set()
        self._heard: dict[str, datetime] = {}
        self.events = 0

    def feed(self, entry: Entry) -> None:
        """One entry, or the end of one."""
        self.events += 1
        if entry.bucket in (DESIRED, ACTUAL):
            key = parse_deployment_key(entry.key)
            if key is not None:
                self._take(key, entry)
            return
        name = entry.key.partition(".")[2]
        if entry.bucket == INFO:
            (self._devices.discard if entry.value is None else self._devices.add)(name)
        elif entry.value is None or entry.created is None:
            self._heard.pop(name, None)
        else:
            self._heard[name] = entry.created

    def relist(self, bucket: str, entries: Iterable[Entry]) -> None:
        """All that a bucket holds: what isn't among it is gone."""
        there = {entry.key: entry for entry in entries}
        known: dict[str, Iterable[str]] = {
            DESIRED: [str(key) for key in self._expected],
            ACTUAL: [str(key) for key in self._reported],
            INFO: [f"info.{name}" for name in self._devices],
            HEARTBEAT: [f"heartbeat.{name}" for name in self._heard],
        }
        for key in known[bucket]:
            if key not in there:
                self.feed(Entry(bucket, key, None, 0, None))
        for entry in there.values():
            self.feed(entry)

    def _take(self, key: DeploymentKey, entry: Entry) -> None:
        if entry.bucket == DESIRED:
            wire = to_desired(entry).manifest
            if wire is None:
                self._expected.pop(key, None)
            else:
                self._expected[key] = Expected(wire.lineage, wire.generation, wire.removed)
        else:
            actual = to_actual(entry)
            if actual.status is not None:
                self._reported[key] = _told(actual.status, entry.created)
            elif actual.problem:
                self._reported[key] = Reported("Failed", "Unreadable", None, 0, entry.created)
            else:
                self._reported.pop(key, None)
        self._count(key)

    def _count(self, key: DeploymentKey) -> None:
        old, new = self._groups.get(key), group_of(self._expected.get(key), self._reported.get(key))
        if old == new:
            return
        counts = self._counts.setdefault(key.deployment, Counter())
        if old is not None:
            counts[old] -= 1
        if new is None:
            del self._groups[key]
        else:
            counts[new] += 1
            self._groups[key] = new

    def deployments(self) -> list[DeploymentCounts]:
        """Each deployment that is anywhere, by name."""
        names = sorted(name for name, counts in self._counts.items() if counts.total())
        worst: dict[str, LastError] = {}
        for key, group in self._groups.items():
            reported = self._reported.get(key)
            if group in ("failed", "held") and reported is not None:
                found = LastError(key.device, reported.phase, reported.reason, reported.created)
                worst[key.deployment] = max(found, worst.get(key.deployment, found), key=_recent)
        return [
            DeploymentCounts(
                name, {group: self._counts[name][group] for group in GROUPS}, worst.get(name)
            )
            for name in names
        ]

    def errors(self, most: int) -> list[tuple[DeploymentKey, Reported]]:
        """List the errors of all devices, the newest first."""
        bad = [
            key
            for key, group in self._groups.items()
            if group in ("failed", "held") and key in self._reported
        ]
        reported = [(key, self._reported[key]) for key in bad]
        return heapq.nlargest(most, reported, key=lambda item: (_moment(item[1].created), item[0]))

    def devices(self) -> list[str]:
        """Every device that told of itself or was heard."""
        return sorted(self._devices | self._heard.keys())

    def heard(self, name: str) -> datetime | None:
        """JetStream's time of the device's last heartbeat."""
        return self._heard.get(name)

    def stale(self, now: datetime) -> list[str]:
        """The devices of which no heartbeat came lately."""
        return [
            name
            for name in self.devices()
            if name not in self._heard or now - self._heard[name] > STALE_AFTER
        ]

    def as_json(self, now: datetime) -> dict[str, Any]:
        """The whole, for programs."""
        reported = [tally.as_json() for tally in self.deployments()]
        return {"deployments": reported, "devices": len(self.devices()), "stale": self.stale(now)}


def _told(status: DeploymentStatus, created: datetime | None) -> Reported:
    reason = status.reason or next(
        (
            item.reason
            for _, item in sorted(status.resources.items())
            if item.reason and item.phase != "Ready"
        ),
        "",
    )
    paused = status.paused.until if status.paused is not None else ""
    generation = status.generation or 0
    return Reported(status.phase, reason, status.lineage, generation, created, paused)


def _recent(error: LastError) -> tuple[float, str]:
    """By time, and by name where two came at once: whichever was seen first makes no difference."""
    return _moment(error.at), error.device


def _moment(at: datetime | None) -> float:
    return at.timestamp() if at is not None else 0.0


async def load(store: Store, view: FleetView) -> None:
    """All that the buckets hold now."""

    async def one(bucket: str) -> None:
        view.relist(bucket, (await store.entries(bucket)).values())

    await asyncio.gather(*(one(bucket) for bucket in WATCHED))


async def keep(store: Store, view: FleetView, changed: Callable[[], None] = lambda: None) -> None:
    """Feed `view` until cancelled: each change at once, and now and then all of it, so that nothing
    is missed.
    """

    async def follow(bucket: str) -> None:
        async with contextlib.aclosing(store.watch(bucket, None)) as entries:
            async for entry in entries:
                view.feed(entry)
                changed()

    async def relist() -> None:
        while True:
            with contextlib.suppress(Unreachable):
                await load(store, view)
                changed()
            await asyncio.sleep(RELIST_SECONDS)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(relist())
        for bucket in WATCHED:
            tasks.create_task(follow(bucket))
