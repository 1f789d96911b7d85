"""A set is worked on by one thread, each item has its own outcome, and what hangs holds back only
itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from harmony_agent.adapters.posix import together
from harmony_agent.adapters.posix.executor import BoundedExecutor, Job, TimedOut
from harmony_agent.adapters.posix.together import MOST, Batch, Together

SLOW = 0.02


class Squares:
    """Squares numbers in two stages; notes the sets, and may be told to hang."""

    def __init__(self) -> None:
        self.sets: list[list[int]] = []
        self.grouped: list[list[int]] = []
        self.closed: list[int] = []
        self.hang: dict[int, threading.Event] = {}
        self.first: dict[int, int] = {}
        self.entered = threading.Event()
        self.together = Together(
            BoundedExecutor(lambda _error, _doing: None), self.work, self.close
        )

    def work(self, batch: Batch[int, int]) -> None:
        self.sets.append([member.item for member in batch.members])
        batch.each(self.look)
        batch.sets(lambda number: number % 2, self.group)
        batch.each(lambda number, _job: number * number)

    def look(self, number: int, job: Job) -> None:
        del job
        self.first[number] = self.first.get(number, 0) + 1
        if number in self.hang:
            self.entered.set()
            self.hang[number].wait(10)
        if number < 0:
            raise KeyError(number)

    def group(self, numbers: Sequence[int]) -> None:
        self.grouped.append(list(numbers))
        if 1313 in numbers:
            raise OSError("no")

    def close(self, number: int) -> None:
        self.closed.append(number)

    async def of(self, number: int, seconds: float = 10) -> int:
        return await self.together.run("pool", str(number), f"square {number}", seconds, number)

    async def all(self, *numbers: int) -> list[int | BaseException]:
        found = await asyncio.gather(*map(self.of, numbers), return_exceptions=True)
        return list(found)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(together, "_SLOW_SECONDS", SLOW)


async def test_what_is_ready_at_once_is_one_set() -> None:
    squares = Squares()
    assert await squares.all(1, 2, 3, 4) == [1, 4, 9, 16]
    assert squares.sets == [[1, 2, 3, 4]]
    assert squares.grouped == [[1, 3], [2, 4]]
    assert sorted(squares.closed) == [1, 2, 3, 4]


async def test_a_set_has_a_bound() -> None:
    squares = Squares()
    numbers = range(MOST + 3)
    assert await squares.all(*numbers) == [number * number for number in numbers]
    assert [len(one) for one in squares.sets] == [MOST, 3]


async def test_what_comes_while_a_set_is_worked_on_is_the_next_set() -> None:
    squares = Squares()
    squares.hang[1] = threading.Event()
    first = asyncio.create_task(squares.of(1))
    await asyncio.to_thread(squares.entered.wait, 10)
    others = asyncio.create_task(squares.all(2, 3))
    await asyncio.sleep(0)
    squares.hang[1].set()
    assert (await first, await others) == (1, [4, 9])
    assert squares.sets == [[1], [2, 3]]


async def test_each_has_its_own_error() -> None:
    squares = Squares()
    found = await squares.all(1, -2, 4)
    assert (found[0], found[2]) == (1, 16)
    assert isinstance(found[1], KeyError)
    assert squares.grouped == [[1], [4]]
    assert sorted(squares.closed) == [-2, 1, 4]


async def test_what_fails_for_some_together_fails_for_those() -> None:
    found = await Squares().all(1313, 15, 2)
    assert [type(one) for one in found] == [OSError, OSError, int]


async def test_one_that_hangs_holds_back_no_other_and_no_stage_is_done_twice(slow: None) -> None:
    squares = Squares()
    squares.hang[2] = threading.Event()
    hung = asyncio.create_task(squares.of(2, 0.3))
    others = asyncio.create_task(squares.all(1, 3, 4))
    assert await others == [1, 9, 16]
    with pytest.raises(TimedOut):
        await hung
    with pytest.raises(TimedOut, match="earlier attempt"):
        await squares.of(2)
    assert await squares.of(5) == 25
    squares.hang.pop(2).set()
    while True:
        try:
            assert await squares.of(2) == 4
            break
        except TimedOut:  # the thread is on its way out
            await asyncio.sleep(0.01)
    assert squares.first == {1: 1, 2: 2, 3: 1, 4: 1, 5: 1}


async def test_when_every_thread_hangs_the_others_time_out_and_nothing_piles_up(slow: None) -> None:
    squares = Squares()
    for number in range(4):
        squares.hang[number] = threading.Event()
    hung = []
    for number in range(4):
        squares.entered.clear()
        hung.append(asyncio.create_task(squares.of(number, 2)))
        await asyncio.to_thread(squares.entered.wait, 10)
        await asyncio.sleep(3 * SLOW)
    for number in range(10, 20):
        with pytest.raises(TimedOut):
            await squares.of(number, 2 * SLOW)
    (lane,) = squares.together._lanes.values()
    assert len(lane.waiting) <= 1
    assert len(lane.threads._todo) <= 1
    for number in range(4):
        squares.hang[number].set()
    assert await asyncio.gather(*hung) == [0, 1, 4, 9]
    assert await squares.of(30) == 900


async def test_one_that_was_given_up_before_its_turn_is_never_worked_on() -> None:
    squares = Squares()
    squares.hang[1] = threading.Event()
    first = asyncio.create_task(squares.of(1))
    await asyncio.to_thread(squares.entered.wait, 10)
    second = asyncio.create_task(squares.of(2))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    squares.hang[1].set()
    assert await first == 1
    assert await squares.of(3) == 9
    assert 2 not in squares.first


async def test_one_that_is_given_up_in_a_set_goes_through_no_later_stage() -> None:
    squares = Squares()
    squares.hang[2] = threading.Event()
    given_up = asyncio.create_task(squares.of(1))
    other = asyncio.create_task(squares.of(2))
    await asyncio.to_thread(squares.entered.wait, 10)  # the first stage of 1 is over by then
    given_up.cancel()
    await asyncio.sleep(0.05)
    squares.hang[2].set()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert await other == 4
    assert squares.grouped == [[2]]
    assert sorted(squares.closed) == [1, 1, 2]  # at once, and with the set


async def test_without_a_thread_each_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    found = await Squares().all(1, 2)
    assert all(isinstance(one, OSError) for one in found)
