"""A whole control plane in memory: buckets with compare-and-set, a watch that may miss things, a
link that breaks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from harmony_agent.topology.control_plane import (
    BucketMissing,
    Entry,
    Event,
    Lost,
    Snapshot,
    Unreachable,
    Update,
)
from scores.keys import BUCKETS, DESIRED
from tests.fakes.control import FakeBuckets


class FakePlane(FakeBuckets):
    """Implements `topology.control.ControlPlane` for `device`, as `control_plane` behaves.

    reachable
        False: every call says so; the watch is lost until it is True again.
    deaf
        True: the watch hears of nothing, and only the poll finds it out.
    """

    def __init__(self, device: str, poll: float = 5.0) -> None:
        super().__init__(*BUCKETS)
        self.device = device
        self.poll = poll
        self.reachable = True
        self.deaf = False
        self.births = dict.fromkeys(BUCKETS, 0)
        self._news = asyncio.Event()
        self._came: list[Callable[[], None]] = []
        self._stale = False
        self.written: Callable[[str, str, bytes], None] = lambda _bucket, _key, _data: None
        """called with each write of the device's"""

    # -- what the device sees

    def connected(self) -> bool:
        return self.reachable

    def on_connect(self, came: Callable[[], None]) -> None:
        self._came.append(came)

    async def get(self, bucket: str, key: str) -> Entry | None:
        await self._travel()
        return await super().get(bucket, key)

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        await self._travel()
        return await super().newest(bucket, keys)

    async def told(self) -> set[str]:
        await self._travel()
        return await super().told()

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        await self._travel()
        self.written(bucket, key, data)
        return await super().put(bucket, key, data, revision)

    async def bucket_created_at(self, bucket: str) -> str:
        await self._travel()
        if bucket not in self.entries:
            raise BucketMissing(bucket)
        return str(self.births[bucket])

    async def serve(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        await asyncio.Event().wait()

    async def desired(self) -> AsyncIterator[Event]:
        while True:
            self._stale = False
            try:
                seen = await self._read()
            except (Unreachable, BucketMissing) as error:
                yield Lost(type(error).__name__, str(error))
                await self._wait()
                continue
            yield Snapshot(tuple(seen.values()))
            async for event in self._updates(seen, self.births[DESIRED]):
                yield event

    async def _updates(self, seen: dict[str, Entry], born: int) -> AsyncIterator[Event]:
        """Until there is a doubt."""
        while True:
            heard = await self._wait()
            if (
                self._stale
                or not self.reachable
                or DESIRED not in self.entries
                or self.births[DESIRED] != born
            ):
                return
            found = self.entries[DESIRED]
            missed = {key: entry for key, entry in found.items() if seen.get(key) != entry}
            if missed and (self.deaf or not heard):
                return
            for key, entry in missed.items():
                seen[key] = entry
                yield Update(entry)

    async def _read(self) -> dict[str, Entry]:
        await self._travel()
        if DESIRED not in self.entries:
            raise BucketMissing(DESIRED)
        return dict(self.entries[DESIRED])

    async def _wait(self) -> bool:
        """Whether there is news; else it is time to look."""
        self._news.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), self.poll)
            return True
        return False

    async def _travel(self) -> None:
        await asyncio.sleep(0.01)
        if not self.reachable:
            raise Unreachable("there is no connection")

    # -- what a test does

    def refresh(self) -> None:
        self._stale = True
        self._news.set()

    def cut(self) -> None:
        """The link breaks."""
        self.reachable = False
        self._news.set()

    def mend(self) -> None:
        """The link is back."""
        self.reachable = True
        self.refresh()
        for came in self._came:
            came()

    def forget_agent(self) -> None:
        """The agent that listened is gone."""
        self._came.clear()

    def set(self, bucket: str, key: str, data: bytes | None) -> int:
        revision = super().set(bucket, key, data)
        if bucket == DESIRED and not self.deaf:
            self._news.set()
        return revision

    def remake(self, bucket: str) -> None:
        """The bucket is deleted and made again."""
        self.recreate(bucket)
        self.births[bucket] += 1
