"""Watches of devices: their statuses, heartbeats, and what they tell of themselves."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import datetime
from typing import Generic

from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import M, decode
from scores.keys import ACTUAL, HEARTBEAT, INFO, heartbeat_key, info_key
from scores.status import DeploymentStatus, DeviceInfo, Heartbeat


@dataclass(frozen=True, slots=True)
class Change(Generic[M]):
    """A key's newest value. `value` is None where the key is gone, or can't be read (`problem`, a
    code).

    `deployment` is "" where the value is of the whole device. `at` is the server's time.
    """

    device: str
    deployment: str
    value: M | None
    problem: str
    revision: int
    at: datetime | None


def statuses(
    store: Store, device: str | None, deployment: str | None
) -> AsyncGenerator[Change[DeploymentStatus], None]:
    """From ``actual-state``."""
    return _changes(store, ACTUAL, f"{device or '*'}.{deployment or '*'}", DeploymentStatus)


def heartbeats(store: Store, device: str | None) -> AsyncGenerator[Change[Heartbeat], None]:
    """From ``device-heartbeat``."""
    return _changes(store, HEARTBEAT, heartbeat_key(device or "*"), Heartbeat)


def infos(store: Store, device: str | None) -> AsyncGenerator[Change[DeviceInfo], None]:
    """From ``device-info``."""
    return _changes(store, INFO, info_key(device or "*"), DeviceInfo)


async def _changes(
    store: Store, bucket: str, keys: str, model: type[M]
) -> AsyncGenerator[Change[M], None]:
    async with contextlib.aclosing(store.watch(bucket, [keys])) as entries:
        async for entry in entries:
            yield to_change(entry, model)


def to_change(entry: Entry, model: type[M]) -> Change[M]:
    """Decode an entry of a device."""
    value, problem = decode(model, entry)
    device, _, deployment = (
        entry.key.partition(".")
        if entry.bucket == ACTUAL
        else (entry.key.partition(".")[2], "", "")
    )
    return Change(device, deployment, value, problem, entry.revision, entry.created)
