"""Hops into worker threads for file work: each with its own time, and errors of the kernel turned
into core.errors.

A thread that hangs in the kernel can't be ended. It is left alone, told not to change anything
more, and its path is refused until it comes back; what hangs in one lane takes no thread from
another.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Final, TypeVar

import anyio

from harmony_agent.adapters.files.node_write import Changed
from harmony_agent.adapters.posix.safe_path import (
    Abandoned,
    Job,
    MissingParents,
    PathRefused,
    path_error,
)
from harmony_agent.adapters.posix.thread_pool import ThreadPool
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import PathError

T = TypeVar("T")
_THREADS: Final = 4
"""At once in one lane."""


@dataclass(slots=True)
class _Turn:
    """Lock of a key, and the number of tasks that wait for it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class BoundedExecutor:
    """Runs one piece of work for a key at a time, a few in each lane."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPool] = {}
        self._turns: dict[str, _Turn] = {}
        self._stuck: set[str] = set()

    async def run(
        self, pool: str, key: str, doing: str, seconds: float, work: Callable[[Job], T]
    ) -> T:
        """`work` in a thread of `lane`, which must end within `seconds`. `doing` is as ``write
        /srv/a``.

        Raises Transient alone.
        """
        turn = self._turns.setdefault(key, _Turn())
        turn.waiting += 1
        until = time.monotonic() + seconds
        try:
            with anyio.fail_after(seconds) if turn.waiting > 1 else nullcontext():
                await turn.lock.acquire()
            try:
                return await self._in_thread(pool, key, doing, until, work)
            finally:
                turn.lock.release()
        except TimeoutError as error:
            raise _timeout(doing, f"it took longer than {seconds:g} s") from error
        except (OSError, Changed, PathRefused, MissingParents, Abandoned) as error:
            raise _transient(error, doing) from error
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._turns[key]

    async def _in_thread(
        self, pool: str, key: str, doing: str, until: float, work: Callable[[Job], T]
    ) -> T:
        if key in self._stuck:
            raise _timeout(doing, "an earlier attempt still hangs")
        job = Job()

        def run() -> T:
            job.running = True
            try:
                job.check()
                return work(job)
            finally:
                job.running = False
                self._stuck.discard(key)

        crew = self._pools.get(pool)
        if crew is None:
            crew = self._pools[pool] = ThreadPool(_THREADS)
        done = crew.start(run)
        # A timer on the future itself: a cancel scope for each hop costs as much as the hop.
        timer = asyncio.get_running_loop().call_later(until - time.monotonic(), _expire, done)
        try:
            return await done
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


def _timeout(doing: str, why: str) -> Transient:
    return Transient(
        "Timeout", f"cannot {doing}: {why}; see whether its disk answers", phase="Unknown"
    )


def _transient(error: Exception, doing: str) -> Transient:
    if isinstance(error, PathRefused):
        return from_path_error(error.error)
    if isinstance(error, MissingParents):
        return Transient(
            "ParentMissing", f"cannot {doing}: {error.paths[0]} isn't there", delay=1.0
        )
    if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
        return from_path_error(path_error(error, doing))
    message = f"cannot {doing}: it changed since it was looked at; looking again"
    return Transient("ChangedMeanwhile", message, delay=0.2, phase="Progressing")


def from_path_error(found: PathError) -> Transient:
    """The error for it: retried at the pace of its outside cause, or with backoff."""
    delay = found.seconds if found.phase == "Blocked" else None
    return Transient(found.reason, found.message, delay=delay, phase=found.phase)
