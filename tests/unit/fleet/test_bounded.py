"""Many at a time: how many, in which order, and what becomes of the others when one fails."""

from __future__ import annotations

import asyncio

import pytest

from harmony_fleet.nats import bounded
from harmony_fleet.nats.bounded import gather_bounded


async def test_what_each_gave_in_order_and_no_more_at_once_than_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounded, "AT_ONCE", 3)
    inside, most = 0, 0

    async def double(number: int) -> int:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for _ in range(10 - number):  # who came first ends last
            await asyncio.sleep(0)
        inside -= 1
        return 2 * number

    assert await gather_bounded(double, range(10)) == [2 * number for number in range(10)]
    assert most == 3


async def test_the_first_that_raises_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "AT_ONCE", 2)
    begun: list[int] = []

    async def fail(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise ConnectionError("lost")
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    with pytest.raises(ConnectionError, match="lost"):
        await asyncio.wait_for(gather_bounded(fail, range(100)), 60)
    assert len(begun) <= 3  # the turn of the one that failed may have been taken already
    assert asyncio.all_tasks() == before


async def test_who_waits_for_them_ends_them_too() -> None:
    before = asyncio.all_tasks()
    task = asyncio.ensure_future(gather_bounded(lambda _number: asyncio.Event().wait(), range(100)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == before
