"""What the watchdog is fed by: loops that turn; what hangs outside is slow, not stuck."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio

from harmony_agent.core.resources import Key
from harmony_agent.engine.reconcile.relist import Relister
from harmony_agent.engine.reconcile.watchdog import PERIODS, SLACK, Watchdog
from harmony_agent.engine.reconcile.work_queue import WORKERS, WorkQueue
from tests.fakes.clock import FakeClock

PERIOD = 10.0


class Looks:
    """Of a relister, what progress is judged by."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.kind, self.seconds = "File", seconds

    def idle(self) -> float:
        return self.seconds


@asynccontextmanager
async def running(queue: WorkQueue, work: Any) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(queue.run, work)
        yield
        tasks.cancel_scope.cancel()


def progress(queue: WorkQueue, *looks: Looks) -> Watchdog:
    return Watchdog(queue, cast(list[Relister], list(looks)), PERIOD)


async def test_an_idle_queue_is_not_stuck() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    watched = progress(queue)

    async def work(_key: Key) -> None:
        return

    async with running(queue, work):
        for _ in range(5):
            await clock.settle()
            assert watched.stalled() == ""


async def test_a_queue_whose_workers_all_hang_is_slow_not_stuck() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    watched = progress(queue)
    begun = 0

    async def work(_key: Key) -> None:
        nonlocal begun
        begun += 1
        await asyncio.Event().wait()

    async with running(queue, work):
        for number in range(WORKERS + 5):
            queue.add(Key("File", str(number)))
        for _ in range(5):
            await clock.settle()
            assert watched.stalled() == ""
        assert begun == WORKERS


async def test_a_dispatcher_that_does_not_turn_is_stuck() -> None:
    queue = WorkQueue(FakeClock())
    watched = progress(queue)
    assert watched.stalled() == ""  # the first call only pokes
    await asyncio.sleep(0.01)
    assert watched.stalled() == "the queue"


async def test_a_relist_that_no_longer_comes_is_stuck() -> None:
    clock = FakeClock()
    queue = WorkQueue(clock)
    looks = Looks(PERIODS * PERIOD)
    watched = progress(queue, Looks(), looks)

    async def work(_key: Key) -> None:
        return

    async with running(queue, work):
        await clock.settle()
        assert watched.stalled() == ""
        looks.seconds = PERIODS * PERIOD + SLACK + 1
        await clock.settle()
        assert watched.stalled() == "the relist of File"
        looks.seconds = 0.0
        await clock.settle()
        assert watched.stalled() == ""
