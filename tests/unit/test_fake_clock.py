"""The clock that stands still: who sleeps is woken in order, at the moment, and never by real
time.
"""

from __future__ import annotations

import asyncio

from tests.fakes.clock import FakeClock


async def test_sleepers_wake_in_order_each_at_its_moment() -> None:
    clock, woken = FakeClock(0.0), []

    async def sleeper(name: str, seconds: float, again: float = 0.0) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))
        if again:
            await clock.sleep(again)
            woken.append((name, clock.monotonic()))

    tasks = [
        asyncio.create_task(sleeper(*args)) for args in (("c", 3.0), ("a", 1.0, 1.5), ("b", 1.0))
    ]
    await clock.advance(2)
    assert woken == [("a", 1.0), ("b", 1.0)]
    await clock.advance(1)
    assert woken[2:] == [("a", 2.5), ("c", 3.0)]
    assert clock.monotonic() == 3
    await asyncio.gather(*tasks)


async def test_whoever_is_cancelled_sleeps_no_more() -> None:
    clock = FakeClock()
    task = asyncio.create_task(clock.sleep(5))
    await clock.settle()
    assert clock.sleeping == 1
    task.cancel()
    await clock.settle()
    assert clock.sleeping == 0


async def test_no_time_passes_by_itself() -> None:
    clock = FakeClock(7.0, wall=100.0)
    await clock.sleep(0)
    await asyncio.sleep(0.01)
    assert (clock.monotonic(), clock.now()) == (7.0, 100.0)
    await clock.advance(2.5)
    assert (clock.monotonic(), clock.now()) == (9.5, 102.5)
    clock.wall = 0.0
    assert clock.monotonic() == 9.5
