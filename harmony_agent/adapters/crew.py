"""A few threads that take blocking work in the order in which it came, and hand back what is done many at a time.

Against a general thread pool it saves most of a hop: nothing is acquired, no context copied, and the loop is woken once
for all that ended since it last looked. A thread that has nothing to do ends after a while. Knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
_Task = tuple[asyncio.Future[Any], Callable[[], Any]]
_IDLE_SECONDS: Final = 30.0
"""More than a relist's period, so that a device at rest starts no threads."""
_SIFT: Final = 256
"""So much may wait before it is looked through for what was given up."""


class Crew:
    """At most `most` threads, of which as many are there as were needed lately.

    They are daemons: one that hangs in the kernel keeps no process from ending.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._todo: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        self._sift_at = _SIFT
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._rung = False
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Have `work` done. Whoever ends the future has given up on it: what is under way goes on to its end.

        Raises OSError where there is no thread, and none can be had now.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._todo.qsize() >= self._sift_at:
                self._sift()
            self._todo.put((future, work))
            try:
                self._man()
            except OSError:
                future.cancel()
                raise
        return future

    def _sift(self) -> None:
        """Let go of what was given up: while every thread hangs, no other comes to it. Holds the lock."""
        todo: list[_Task] = []
        with contextlib.suppress(queue.Empty):
            while True:
                todo.append(self._todo.get_nowait())
        wanted = [task for task in todo if not task[0].done()]
        for task in wanted:
            self._todo.put(task)
        self._sift_at = max(_SIFT, 2 * len(wanted))

    def _man(self) -> None:
        """One more thread, where more is to be done than there are idle ones. Holds the lock."""
        if self._todo.qsize() <= self._idle or self._threads >= self._most:
            return
        try:
            threading.Thread(target=self._work, name="crew", daemon=True).start()
        except RuntimeError as error:  # no memory for it, or too many tasks
            if not self._threads:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
            return  # those that are there come to it
        self._threads += 1
        self._idle += 1

    def _work(self) -> None:
        while (task := self._next()) is not None:
            future, work = task
            value: object = None
            error: BaseException | None = None
            if not future.done():
                try:
                    value = work()
                except StopIteration as caught:  # which no future takes
                    error = RuntimeError("the work ended in StopIteration")
                    error.__cause__ = caught
                except BaseException as caught:  # raised again where it is awaited
                    error = caught
            with self._lock:
                self._idle += 1  # before the end of this is told, for what that leads to is this thread's to do
            self._hand_back(future, value, error)
            del task, future, work, value, error  # while it waits it holds on to nothing

    def _next(self) -> _Task | None:
        """What is to be done next; None where there was nothing for long, and the thread isn't counted any more."""
        while True:
            try:
                task = self._todo.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                task = None
            with self._lock:
                if task is not None:
                    self._idle -= 1
                    self._man()  # for what came while this one was still counted as idle
                    return task
                if self._todo.empty():
                    self._idle -= 1
                    self._threads -= 1
                    return None

    def _hand_back(self, future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
        self._done.append((future, value, error))
        if self._rung:
            return
        self._rung = True
        try:
            future.get_loop().call_soon_threadsafe(self._deliver)
        except RuntimeError:  # the loop is closed: nobody waits any more
            self._done.clear()
            self._rung = False

    def _deliver(self) -> None:
        self._rung = False  # before the last look: what ends after it rings again
        while self._done:
            future, value, error = self._done.popleft()
            if future.done():
                continue
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)
