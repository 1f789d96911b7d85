"""Following desired state: a read that fails is tried again soon, a new connection costs one
request, and what that one can't show is found all the same.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from nats.aio.msg import Msg

from harmony_agent.adapters.nats import control_plane as module
from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_agent.topology.control_plane import Event, Lost, Snapshot, Unreachable
from scores.keys import DESIRED
from tests.fakes.control import FakeBuckets
from tests.fakes.virtual import VirtualLoop

POLL = 60.0
WEB, DB = "pi-01.web", "pi-01.db"


class Reads(FakeBuckets):
    """`access.Access` over buckets in memory; no write is heard of."""

    async def names(self) -> set[str]:
        self._called("names", DESIRED)
        return {key.partition(".")[2] for key in self.entries[DESIRED]}


class _Nothing:
    async def unsubscribe(self) -> None:
        """There is nothing to end."""


class Deaf(NatsControl):
    """An adapter that is connected and hears nothing: what it finds it has read."""

    def __init__(self, reads: Reads) -> None:
        super().__init__("pi-01", "machine", ["nats://127.0.0.1:1"], poll=POLL)
        self.access = reads  # type: ignore[assignment]  # what the test asks of it, no more
        self.seen: list[tuple[float, Event]] = []

    def connected(self) -> bool:
        return True

    async def subscribe(self, _subject: str, _arrived: Callable[[Msg], Awaitable[None]]) -> Any:
        return _Nothing()

    async def follow(self) -> None:
        async for event in self.desired():
            self.seen.append((asyncio.get_running_loop().time(), event))

    def come(self) -> None:
        """A new connection is there."""
        for came in self._came:
            came()


def run(test: Callable[[Reads, Deaf], Awaitable[None]]) -> None:
    """Run `test` beside an adapter that follows, in a time that jumps."""

    async def beside() -> None:
        reads = Reads(DESIRED)
        reads.set(DESIRED, WEB, b"1")
        control = Deaf(reads)
        following = asyncio.create_task(control.follow())
        await test(reads, control)
        following.cancel()
        await asyncio.wait([following])

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(beside())


def values(event: Event) -> dict[str, bytes | None]:
    assert isinstance(event, Snapshot), event
    return {entry.key: entry.data for entry in event.entries}


def failing(times: int) -> Callable[[str], None]:
    """A server that is too busy for so many of the next reads."""
    left = [times]

    def fail(_call: str) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise Unreachable("no answer from NATS within 2 s")

    return fail


def test_a_read_that_failed_is_not_left_to_the_poll() -> None:
    """A server that comes back answers late: the device asks again in seconds."""

    async def test(reads: Reads, control: Deaf) -> None:
        await asyncio.sleep(1)
        reads.set(DESIRED, WEB, b"2")
        reads.fail = failing(3)
        control.come()
        await asyncio.sleep(15)
        assert [type(event) for _, event in control.seen] == [Snapshot, Lost, Lost, Lost, Snapshot]
        assert values(control.seen[-1][1]) == {WEB: b"2"}
        assert control.seen[-1][0] - 1 < POLL / 10

    run(test)


def test_the_waits_grow_up_to_the_poll() -> None:
    async def test(reads: Reads, control: Deaf) -> None:
        await asyncio.sleep(1)
        reads.fail = failing(10**6)
        control.come()
        await asyncio.sleep(20 * POLL)
        times = [at for at, event in control.seen if isinstance(event, Lost)]
        waits = [later - sooner for sooner, later in itertools.pairwise(times)]
        assert max(waits) <= POLL
        assert waits[-1] == POLL * module._PART
        assert len(waits) < 40

    run(test)


def test_a_new_connection_asks_for_the_newest_alone() -> None:
    """The index is read once, some seconds later, and where it shows nothing new nothing is
    said.
    """

    async def test(reads: Reads, control: Deaf) -> None:
        await asyncio.sleep(1)
        reads.calls.clear()
        control.come()
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        assert reads.calls == ["newest"]
        await asyncio.sleep(module.SPREAD_SECONDS)
        assert reads.calls.count("names") == 1
        assert [values(event) for _, event in control.seen] == [{WEB: b"1"}] * 2
        await asyncio.sleep(20 * POLL)
        assert reads.calls.count("names") == 1
        assert len(control.seen) == 2

    run(test)


def test_what_was_purged_without_a_trace_is_missed_soon_after_a_connection() -> None:
    """The newest is the same, though the bucket isn't: it was restored, or a key was purged."""

    async def test(reads: Reads, control: Deaf) -> None:
        reads.set(DESIRED, DB, b"old")
        reads.set(DESIRED, WEB, b"3")
        control.refresh()
        await asyncio.sleep(1)
        assert values(control.seen[-1][1]) == {WEB: b"3", DB: b"old"}
        del reads.entries[DESIRED][DB]
        control.come()
        await asyncio.sleep(module.SPREAD_SECONDS + 1)
        assert values(control.seen[-1][1]) == {WEB: b"3"}

    run(test)


def test_resync_reads_every_key_at_once() -> None:
    async def test(reads: Reads, control: Deaf) -> None:
        await asyncio.sleep(1)
        reads.calls.clear()
        control.refresh()
        await asyncio.sleep(0.001)
        assert "names" in reads.calls

    run(test)
