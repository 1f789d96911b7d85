"""Threads for blocking work: how many, in which order, and what becomes of what nobody waits for
any more.
"""

from __future__ import annotations

import asyncio
import threading
import time
import weakref

import pytest

from harmony_agent.adapters.posix import thread_pool as module
from harmony_agent.adapters.posix.thread_pool import ThreadPool


def crews() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "crew"]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """For few: on a busy machine a thread may well have nothing to do for so long, and another
    comes after it.
    """
    monkeypatch.setattr(module, "_IDLE_SECONDS", 0.05)


async def ended(before: list[threading.Thread]) -> None:
    """Until no thread is there that wasn't before."""
    for _ in range(2000):
        if not set(crews()) - set(before):
            return
        await asyncio.sleep(0.01)
    raise AssertionError("a thread stays though it has nothing to do")


async def test_one_after_the_other_in_one_thread() -> None:
    crew, seen = ThreadPool(1), []

    def note(number: int) -> int:
        seen.append((number, threading.get_ident()))
        return number * 2

    done = [crew.start(lambda number=number: note(number)) for number in range(1000)]  # type: ignore[misc]  # bound now
    assert await asyncio.gather(*done) == [number * 2 for number in range(1000)]
    assert [number for number, _ in seen] == list(range(1000))
    assert len({thread for _, thread in seen}) == 1


async def test_what_comes_one_at_a_time_needs_one_thread() -> None:
    crew = ThreadPool(4)
    assert len({await crew.start(threading.get_ident) for _ in range(200)}) == 1


async def test_as_many_as_there_may_be_and_no_more() -> None:
    crew, gate, inside = ThreadPool(3), threading.Event(), []

    def enter() -> None:
        inside.append(1)
        assert gate.wait(60)

    done = [crew.start(enter) for _ in range(7)]
    while len(inside) < 3:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.1)
    assert len(inside) == 3
    gate.set()
    await asyncio.gather(*done)
    assert len(inside) == 7


async def test_one_that_hangs_holds_up_no_other() -> None:
    crew, gate = ThreadPool(2), threading.Event()
    hangs = crew.start(lambda: gate.wait(60))
    assert (
        await asyncio.gather(*(crew.start(lambda: "goes on") for _ in range(50)))
        == ["goes on"] * 50
    )
    assert not hangs.done()
    gate.set()
    assert await hangs


async def test_an_error_is_raised_where_it_is_awaited() -> None:
    crew = ThreadPool(1)

    def fail() -> None:
        raise OSError(28, "full")

    with pytest.raises(OSError, match="full"):
        await crew.start(fail)
    assert await crew.start(lambda: "goes on") == "goes on"


async def test_an_error_that_no_future_takes_holds_up_nothing() -> None:
    crew = ThreadPool(1)

    def fail() -> None:
        next(iter(()))

    failed, after = crew.start(fail), crew.start(lambda: "goes on")
    assert await asyncio.wait_for(after, 60) == "goes on"
    with pytest.raises(RuntimeError, match="StopIteration"):
        await asyncio.wait_for(failed, 60)


def refuse(_thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


async def test_a_thread_that_cannot_be_had_is_told_and_had_later() -> None:
    crew, seen = ThreadPool(2), []
    for _ in range(3):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(OSError, match="unavailable"):
                crew.start(lambda: seen.append("never"))
    for _ in range(3):
        assert await asyncio.wait_for(crew.start(lambda: "goes on"), 60) == "goes on"
    assert seen == []


async def test_where_no_more_threads_can_be_had_those_that_are_there_do_it_all() -> None:
    crew, gate = ThreadPool(4), threading.Event()
    first = crew.start(lambda: gate.wait(60))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        others = [crew.start(lambda: "goes on") for _ in range(3)]
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(first, *others), 60) == [
            True,
            *["goes on"] * 3,
        ]
    assert await asyncio.wait_for(crew.start(lambda: "goes on"), 60) == "goes on"


async def test_while_every_thread_hangs_what_was_given_up_is_not_kept() -> None:
    class Content:
        """Of a file."""

    crew, gate = ThreadPool(1), threading.Event()
    hangs, kept = crew.start(lambda: gate.wait(60)), weakref.WeakSet[Content]()
    waits = crew.start(lambda: "goes on")
    for _ in range(5000):
        content = Content()
        kept.add(content)
        crew.start(lambda content=content: content).cancel()  # type: ignore[misc]  # bound now
    assert len(kept) <= 300
    assert not waits.done()
    gate.set()
    assert (await hangs, await waits) == (True, "goes on")


async def test_a_thread_that_waits_keeps_nothing_of_what_it_did() -> None:
    class Content:
        """Of a file."""

    crew, kept = ThreadPool(1), weakref.WeakSet[Content]()
    for _ in range(2):
        content = Content()
        kept.add(content)
        await crew.start(lambda content=content: id(content))  # type: ignore[misc]  # bound now
        del content
    while kept:
        await asyncio.sleep(0.001)


async def test_who_ended_last_is_the_next_to_begin() -> None:
    """So that those that aren't needed any more come to their end."""
    crew, gate = ThreadPool(3), threading.Event()
    many = [crew.start(lambda: gate.wait(60)) for _ in range(3)]
    gate.set()
    await asyncio.gather(*many)
    while len(crew._idle) < 3:
        await asyncio.sleep(0.001)
    assert len({await crew.start(threading.get_ident) for _ in range(20)}) == 1


async def test_what_was_given_up_before_it_began_is_not_done_and_what_was_begun_ends() -> None:
    crew, gate, seen = ThreadPool(1), threading.Event(), []

    def begin() -> None:
        seen.append("begun")
        assert gate.wait(60)
        seen.append("ended")

    begun, queued = crew.start(begin), crew.start(lambda: seen.append("never"))
    while not seen:
        await asyncio.sleep(0.001)
    begun.cancel()
    queued.cancel()
    gate.set()
    await crew.start(lambda: None)
    assert seen == ["begun", "ended"]


@pytest.mark.usefixtures("short")
async def test_threads_end_when_there_is_nothing_to_do_and_come_again() -> None:
    before = crews()
    crew = ThreadPool(4)
    for _ in range(3):
        await asyncio.gather(*(crew.start(lambda: time.sleep(0.001)) for _ in range(20)))
        assert set(crews()) - set(before)
        await ended(before)
    assert await crew.start(lambda: "goes on") == "goes on"


def test_a_loop_that_is_closed_leaves_the_next_one_its_threads() -> None:
    crew, gate = ThreadPool(1), threading.Event()

    async def give_up() -> None:
        crew.start(lambda: gate.wait(60)).cancel()

    async def use() -> str:
        return await crew.start(lambda: "goes on")

    asyncio.run(give_up())
    gate.set()
    assert asyncio.run(use()) == "goes on"
