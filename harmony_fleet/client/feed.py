"""Several watches in one queue, so that what rests on more than one bucket has one reader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO, heartbeat_key, info_key

_MOST: Final = 1000
"""Entries that wait; then the watches wait as well."""


def keys_of(buckets: Iterable[str], device: str | None, deployment: str | None) -> dict[str, str]:
    """The keys of these buckets that are of one device or deployment, or of all."""
    place = f"{device or '*'}.{deployment or '*'}"
    of_device = {HEARTBEAT: heartbeat_key(device or "*"), INFO: info_key(device or "*")}
    every = {DESIRED: place, ACTUAL: place, **of_device}
    return {bucket: every[bucket] for bucket in buckets}


async def read_all(store: Store, keys: Mapping[str, str]) -> list[Entry]:
    """The newest entry of each key."""
    found = await asyncio.gather(*(store.entries(bucket, [key]) for bucket, key in keys.items()))
    return [entry for entries in found for entry in entries.values()]


class Feed:
    """The entries of all watches, as they come."""

    def __init__(self) -> None:
        self._queue = asyncio.Queue[Entry | Exception](_MOST)

    async def follow(self, store: Store, bucket: str, key: str) -> None:
        """Put what a watch gives into the queue, and why it ended."""
        try:
            async with contextlib.aclosing(store.watch(bucket, [key])) as entries:
                async for entry in entries:
                    await self._queue.put(entry)
        except Exception as error:  # the reader raises it
            await self._queue.put(error)

    async def next(self, seconds: float) -> list[Entry]:
        """Entries that have come; after at most `seconds` none."""
        found: list[Entry] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                self._take(found, await self._queue.get())
        while not self._queue.empty():
            self._take(found, self._queue.get_nowait())
        return found

    @staticmethod
    def _take(found: list[Entry], come: Entry | Exception) -> None:
        if isinstance(come, Exception):
            raise come
        found.append(come)


@contextlib.asynccontextmanager
async def feeding(store: Store, keys: Mapping[str, str]) -> AsyncIterator[Feed]:
    """Watch these keys until the end of the block."""
    feed = Feed()
    tasks = [asyncio.ensure_future(feed.follow(store, *item)) for item in keys.items()]
    try:
        yield feed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
