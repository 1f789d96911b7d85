"""The executor knows no kind's errors: it raises its own, or what a translator makes of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest

from harmony_agent.adapters.posix.executor import Abandoned, BoundedExecutor, Job, TimedOut


class Refused(Exception):
    """An error of whoever calls."""


def own(_error: Exception, _doing: str) -> None:
    """Translates nothing."""


async def run(threads: BoundedExecutor, seconds: float, work: Callable[[Job], object]) -> object:
    return await threads.run("pool", "key", "do it", seconds, work)


async def test_an_error_of_the_work_comes_as_it_is_or_translated() -> None:
    def fails(_job: Job) -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run(BoundedExecutor(own), 5, fails)
    told = BoundedExecutor(lambda error, doing: Refused(f"{doing}: {type(error).__name__}"))
    with pytest.raises(Refused, match="do it: KeyError") as caught:
        await run(told, 5, fails)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_work_that_hangs_is_timed_out_then_refused_and_abandoned() -> None:
    threads, release, ended = BoundedExecutor(own), threading.Event(), asyncio.Event()
    loop, errors = asyncio.get_running_loop(), list[Exception]()

    def hangs(job: Job) -> None:
        release.wait(10)
        try:
            job.check()
        except Abandoned as error:
            errors.append(error)
        loop.call_soon_threadsafe(ended.set)

    with pytest.raises(TimedOut, match=r"longer than 0\.05 s"):
        await run(threads, 0.05, hangs)
    with pytest.raises(TimedOut, match="earlier attempt"):
        await run(threads, 5, hangs)
    release.set()
    await ended.wait()
    assert [type(error) for error in errors] == [Abandoned]
    while True:
        try:
            assert await run(threads, 5, lambda _job: 7) == 7
            break
        except TimedOut:  # the thread is on its way out
            await asyncio.sleep(0.01)


async def test_work_that_is_cancelled_comes_to_its_check_before_the_next_begins() -> None:
    threads, begun, steps = BoundedExecutor(own), threading.Event(), list[str]()

    def goes_on(job: Job) -> None:
        begun.set()
        while True:
            threading.Event().wait(0.01)
            try:
                job.check()
            except Abandoned:
                steps.append("left")
                raise

    task = asyncio.create_task(run(threads, 30, goes_on))
    await asyncio.to_thread(begun.wait, 10)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await run(threads, 5, lambda _job: steps.append("next")) is None
    assert steps == ["left", "next"]
