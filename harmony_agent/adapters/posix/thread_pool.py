"""A few threads that do blocking work in the order in which it came.

A hop costs less than with a general thread pool: nothing is acquired, no context is copied, and the
loop is woken once for all work that ended since its last look. An idle thread ends after a while.
The pool knows nothing of the work.
"""

from __future__ import annotations

import asyncio
import errno
import os
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

T = TypeVar("T")
_Task = tuple[asyncio.Future[Any], Callable[[], Any]]
_IDLE_SECONDS: Final = 15.0
"""More than a relist's period, so that a device at rest starts no threads."""
_SIFT: Final = 256
"""Length of the queue at which abandoned work is looked for and dropped."""


class ThreadPool:
    """At most `most` threads. The thread that ended its work last gets the next.

    They are daemons: a thread that hangs in the kernel doesn't keep the process from ending.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._threads = 0
        self._idle: list[queue.SimpleQueue[_Task]] = []
        self._todo: deque[_Task] = deque()
        self._sift_at = _SIFT
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._rung = False
        self._lock = threading.Lock()

    def start(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Start `work`. A caller gives up by ending the future; work that has begun goes on.

        Raises OSError if there is no thread and none can be started.
        """
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._idle:
                self._idle.pop().put((future, work))
            elif not self._hire((future, work)):
                self._queue((future, work))
        return future

    def _hire(self, task: _Task) -> bool:
        """Start one more thread with this task. False if there can be no more.

        The caller holds the lock.
        """
        if self._threads >= self._most:
            return False
        inbox: queue.SimpleQueue[_Task] = queue.SimpleQueue()
        inbox.put(task)  # and not its argument, which a thread keeps until it ends
        try:
            threading.Thread(target=self._work, args=(inbox,), name="crew", daemon=True).start()
        except RuntimeError as error:  # no memory for it, or too many tasks
            if not self._threads:
                raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error
            return False  # those that are there come to it
        self._threads += 1
        return True

    def _queue(self, task: _Task) -> None:
        """Keep the task for the next free thread, and drop abandoned ones: every thread may hang.

        The caller holds the lock.
        """
        if len(self._todo) >= self._sift_at:
            self._todo = deque(other for other in self._todo if not other[0].done())
            self._sift_at = max(_SIFT, 2 * len(self._todo))
        self._todo.append(task)

    def _work(self, inbox: queue.SimpleQueue[_Task]) -> None:
        task: _Task | None = inbox.get()
        while task is not None:
            future, (value, error) = task[0], _outcome(*task)
            # Before the result is told: what follows from the result is for this thread.
            with self._lock:
                task = self._todo.popleft() if self._todo else None
                if task is None:
                    self._idle.append(inbox)
            self._hand_back(future, value, error)
            del future, value, error  # while it waits it holds on to nothing
            if task is None:
                task = self._wait(inbox)

    def _wait(self, inbox: queue.SimpleQueue[_Task]) -> _Task | None:
        """Wait for the next task. None after a long idle time: the thread isn't counted then."""
        try:
            return inbox.get(timeout=_IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._threads -= 1
                    return None
            return inbox.get()  # it came just now

    def _hand_back(
        self, future: asyncio.Future[Any], value: object, error: BaseException | None
    ) -> None:
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


def _outcome(
    future: asyncio.Future[Any], work: Callable[[], Any]
) -> tuple[object, BaseException | None]:
    """Run the work, and return its result and its error. Skips work whose caller gave up."""
    if future.done():
        return None, None
    try:
        return work(), None
    except StopIteration as caught:  # which no future takes
        error = RuntimeError("the work ended in StopIteration")
        error.__cause__ = caught
        return None, error
    except BaseException as caught:  # raised again where it is awaited
        return None, caught
