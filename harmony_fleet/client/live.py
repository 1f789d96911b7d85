"""The rows of `harmony status`, kept up to date."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Final

from harmony_fleet.client.feed import feeding, keys_of, read_all
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import (
    Actual,
    Deployment,
    Desired,
    Device,
    to_actual,
    to_desired,
)
from harmony_fleet.observe.status import Row, rows
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, DeploymentKey, parse_deployment_key

_WATCHED: Final = (DESIRED, ACTUAL, HEARTBEAT)
_SECONDS: Final = 1.0
"""Between two looks: ages grow, and a device falls silent, without any news."""
_PAUSE: Final = 0.25
"""At least between two looks: in a large fleet something comes all the time."""


class LiveRows:
    """Feed it entries of the three buckets, in any order; it tells the rows at any time."""

    def __init__(self) -> None:
        self._desired: dict[DeploymentKey, Desired] = {}
        self._actual: dict[DeploymentKey, Actual] = {}
        self._heard: dict[str, datetime] = {}

    def feed(self, entry: Entry) -> None:
        """One entry."""
        key = parse_deployment_key(entry.key)
        if key is None:
            return
        if entry.bucket == HEARTBEAT:
            if entry.value is not None and entry.created is not None:
                self._heard[key.deployment] = entry.created
        elif entry.bucket == DESIRED:
            self._desired[key] = to_desired(entry)
        elif entry.value is None:
            self._actual.pop(key, None)
        else:
            self._actual[key] = to_actual(entry)

    def rows(self, now: datetime) -> list[Row]:
        """A row for each deployment that is anywhere. `now` is the server's time."""
        there = {key for key, found in self._desired.items() if found.manifest or found.problem}
        found = [
            Deployment(key, self._desired.get(key, Desired()), self._actual.get(key, Actual()))
            for key in sorted(there | self._actual.keys())
        ]
        devices = [Device(name, None, heard) for name, heard in self._heard.items()]
        return rows(found, devices, now)


async def watch_rows(
    store: Store, device: str | None, deployment: str | None
) -> AsyncGenerator[list[Row], None]:
    """All rows, now and at least each second, without end."""
    live, keys = LiveRows(), keys_of(_WATCHED, device, deployment)
    for entry in await read_all(store, keys):
        live.feed(entry)
    async with feeding(store, keys) as feed:
        while True:
            yield live.rows(await store.now())
            await asyncio.sleep(_PAUSE)
            for entry in await feed.next(_SECONDS):
                live.feed(entry)
