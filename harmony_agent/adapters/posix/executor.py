"""Blocking work in threads: one piece for a key at a time, a few in each pool, each within a time.

A thread that hangs in the kernel can't be ended. It is left alone and told to change nothing more,
and its key is refused until it comes back. A pool that hangs takes no thread from another. The
executor knows nothing of the work; a translator turns the errors of the work into the caller's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from harmony_agent.adapters.posix.thread_pool import ThreadPool

T = TypeVar("T")
Translate = Callable[[Exception, str], Exception | None]
"""Turns an error, and what was being done, into the caller's error. None: it stays as it is."""
_THREADS: Final = 4
"""At once in one pool."""
_LEAVE_SECONDS: Final = 1.0


class TimedOut(Exception):
    """The work didn't end in time; the message says why. A thread may still hang in it."""


class Abandoned(Exception):
    """The caller gave up on this work; it must change nothing more."""


@dataclass(slots=True)
class Job:
    """One piece of work in a thread. Its caller may give up on it (a timeout, a shutdown)."""

    abandoned: bool = False
    running: bool = False

    def check(self) -> None:
        """Stop here if the caller gave up."""
        if self.abandoned:
            raise Abandoned


@dataclass(slots=True)
class _Turn:
    """Lock of a key, and the number of tasks that wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class BoundedExecutor:
    """Runs work in threads. Its errors are those of `translate`."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate
        self._pools: dict[str, ThreadPool] = {}
        self._turns: dict[str, _Turn] = {}
        self._stuck: set[str] = set()

    async def run(
        self, pool: str, key: str, doing: str, seconds: float, work: Callable[[Job], T]
    ) -> T:
        """Run `work` in a thread of `pool`, within `seconds`. `doing` is as ``write /srv/a``."""

        def start(job: Job) -> asyncio.Future[T]:
            def run() -> T:
                job.running = True
                try:
                    job.check()
                    return work(job)
                finally:
                    job.running = False
                    self.ended(key)

            return self.threads(pool).start(run)

        return await self.bounded(key, doing, seconds, start)

    async def bounded(
        self, key: str, doing: str, seconds: float, start: Callable[[Job], asyncio.Future[T]]
    ) -> T:
        """Wait for what `start` starts, within `seconds`, once nothing else is under way for `key`."""
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        until = time.monotonic() + seconds
        try:
            with anyio.fail_after(seconds) if turn.waiting > 1 else nullcontext():
                await turn.lock.acquire()
            try:
                return await self._wait(key, until, start)
            finally:
                turn.lock.release()
        except TimeoutError as error:
            late = TimedOut(f"it took longer than {seconds:g} s")
            raise self._translate(late, doing) or late from error
        except Exception as error:
            translated = self._translate(error, doing)
            if translated is None:
                raise
            raise translated from error
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]

    def threads(self, pool: str) -> ThreadPool:
        """Return the threads of a pool."""
        threads = self._pools.get(pool)
        if threads is None:
            threads = self._pools[pool] = ThreadPool(_THREADS)
        return threads

    def ended(self, key: str) -> None:
        """Note that no thread works on `key` any more. Called by that thread."""
        self._stuck.discard(key)

    async def _leave(self, job: Job) -> None:
        """Let cancelled work come to its next check, so that its key is free for what comes now."""
        job.abandoned = True
        with anyio.move_on_after(_LEAVE_SECONDS, shield=True):
            while job.running:  # noqa: ASYNC110  # a thread tells it, which has no event loop
                await anyio.sleep(_LEAVE_SECONDS / 100)

    async def _wait(self, key: str, until: float, start: Callable[[Job], asyncio.Future[T]]) -> T:
        if key in self._stuck:
            raise TimedOut("an earlier attempt still hangs")
        job = Job()
        done = start(job)
        # A timer on the future itself: a cancel scope for each hop costs as much as the hop.
        timer = asyncio.get_running_loop().call_later(until - time.monotonic(), _expire, done)
        try:
            return await done
        except asyncio.CancelledError:
            await self._leave(job)
            raise
        finally:
            timer.cancel()
            job.abandoned = True
            if job.running:
                self._stuck.add(key)
                if not job.running:  # it ended just now
                    self._stuck.discard(key)


def _expire(done: asyncio.Future[T]) -> None:
    if not done.done():
        done.set_exception(TimeoutError())
