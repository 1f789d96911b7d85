"""Blocking work on many items in one thread: what comes while a set is worked on is the next set.

A hop into a thread and a sync of the disk cost the same for many items as for one. Each item has an
outcome of its own. An item that hangs holds back those alone that are worked on in the same call:
another thread takes over the rest.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

from harmony_agent.adapters.posix.executor import Abandoned, BoundedExecutor, Job
from harmony_agent.adapters.posix.thread_pool import ThreadPool

I = TypeVar("I")  # noqa: E741  # an item
T = TypeVar("T")
MOST: Final = 128
"""Items of one set. Each may hold two descriptors, and a service has 1,024 by default."""
_SLOW_SECONDS: Final = 0.25
"""Longer than a sync of a slow card: after that the rest goes on in another thread."""


class Member(Generic[I, T]):
    """One item of a set, and what became of it."""

    __slots__ = ("error", "future", "item", "job", "key", "result", "stage")

    def __init__(self, key: str, item: I, job: Job, future: asyncio.Future[T]) -> None:
        self.key, self.item, self.job, self.future = key, item, job, future
        self.result: T | None = None
        self.error: BaseException | None = None
        self.stage = 0
        """number of the stages that it has behind it"""


class Batch(Generic[I, T]):
    """A set in the hands of one thread, which takes it from stage to stage.

    A member whose stage failed, or whose caller gave up, is in no later stage.
    """

    def __init__(self, members: Iterable[Member[I, T]], close: Callable[[I], None]) -> None:
        self._members = dict.fromkeys(members)
        self._close = close
        self._stage = 0
        self._busy: Sequence[Member[I, T]] = ()
        self._since = float("inf")  # no thread has it yet
        self._lock = threading.Lock()

    @property
    def members(self) -> list[Member[I, T]]:
        """Those that no other thread took over."""
        return list(self._members)

    def each(self, stage: Callable[[I, Job], T | None]) -> None:
        """Take the members through a stage, one after the other. What it returns is the result."""
        self._stage += 1
        for member in self.members:
            for one in self._enter([member]):
                try:
                    one.result = stage(one.item, one.job)
                except Exception as error:
                    one.error = error

    def sets(self, by: Callable[[I], Hashable], stage: Callable[[Sequence[I]], None]) -> None:
        """Take the members through a stage, all those together for which `by` is the same."""
        self._stage += 1
        groups: dict[Hashable, list[Member[I, T]]] = {}
        for member in self.members:
            if member.error is None:
                groups.setdefault(by(member.item), []).append(member)
        for group in groups.values():
            entered = self._enter(group)
            try:
                if entered:
                    stage([one.item for one in entered])
            except Exception as error:
                for one in entered:
                    one.error = error

    def _enter(self, members: Sequence[Member[I, T]]) -> Sequence[Member[I, T]]:
        """Those of them that go through this stage now; nobody takes these over."""
        with self._lock:
            self._busy = [
                one
                for one in members
                if one in self._members and one.error is None and one.stage < self._stage
            ]
            self._since = time.monotonic()
        for one in self._busy:
            one.stage, one.job.running = self._stage, True
            if (
                one.job.abandoned
            ):  # asked last: its caller says so first, and looks at `running` then
                self._leave(one)
        return [one for one in self._busy if one.error is None]

    def _leave(self, member: Member[I, T]) -> None:
        member.error = Abandoned()
        self._close(member.item)
        member.job.running = False

    def hangs(self) -> bool:
        """Return whether one call has been under way for long."""
        return time.monotonic() - self._since > _SLOW_SECONDS

    def split(self) -> Batch[I, T] | None:
        """Take the members that aren't in a call just now into a set of their own, which begins
        where each stands.
        """
        with self._lock:
            rest = [one for one in self._members if one not in self._busy]
            self._members = dict.fromkeys(self._busy)
        return Batch(rest, self._close) if rest else None

    def end(self, ended: Callable[[str], None]) -> None:
        """Close every item, and tell of each key that no thread works on it any more."""
        with self._lock:
            members = self.members
            self._busy = members
        for member in members:
            try:
                self._close(member.item)
            finally:
                member.job.running = False
                ended(member.key)


class _Lane(Generic[I, T]):
    """The sets of one pool: one is worked on, the others wait."""

    def __init__(self, threads: ThreadPool) -> None:
        self.threads = threads
        self.waiting: list[Member[I, T]] = []
        self.batch: Batch[I, T] | None = None
        self.look: asyncio.TimerHandle | None = None
        self.called = False

    def drop_done(self) -> None:
        """Drop those whose callers gave up."""
        self.waiting = [member for member in self.waiting if not member.future.done()]


class Together(Generic[I, T]):
    """Runs `work` on sets. `close` gives back what an item holds; it may be called twice."""

    def __init__(
        self,
        executor: BoundedExecutor,
        work: Callable[[Batch[I, T]], None],
        close: Callable[[I], None] = lambda _item: None,
    ) -> None:
        self._executor, self._work, self._close = executor, work, close
        self._lanes: dict[str, _Lane[I, T]] = {}

    async def run(self, pool: str, key: str, doing: str, seconds: float, item: I) -> T:
        """Work on `item` in a thread of `pool`, with what else comes; as `BoundedExecutor.run`."""
        start = partial(self._add, pool, key, item)
        return await self._executor.bounded(key, doing, seconds, start)

    def _add(self, pool: str, key: str, item: I, job: Job) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(pool)
        if lane is None:
            lane = self._lanes[pool] = _Lane(self._executor.threads(pool))
        member = Member[I, T](key, item, job, loop.create_future())
        lane.waiting.append(member)
        self._call(lane)
        return member.future

    def _call(self, lane: _Lane[I, T]) -> None:
        """Start the next set once all that is ready has come to it."""
        if lane.batch is None and lane.waiting and not lane.called:
            lane.called = True
            asyncio.get_running_loop().call_soon(self._next, lane)

    def _next(self, lane: _Lane[I, T]) -> None:
        lane.called = False
        lane.drop_done()
        if lane.batch is None and lane.waiting:
            members, lane.waiting = lane.waiting[:MOST], lane.waiting[MOST:]
            self._start(lane, Batch(members, self._close))

    def _start(self, lane: _Lane[I, T], batch: Batch[I, T]) -> None:
        lane.batch = batch
        try:
            done = lane.threads.start(partial(self._in_thread, batch))
        except OSError as error:  # there is no thread, and none can be started
            for member in batch.members:
                member.error = error
            self._deliver(lane, batch)
            return
        loop = asyncio.get_running_loop()
        lane.look = loop.call_later(_SLOW_SECONDS, self._look, lane, batch)
        done.add_done_callback(lambda _done: self._deliver(lane, batch))

    def _in_thread(self, batch: Batch[I, T]) -> None:
        try:
            self._work(batch)
        except BaseException as error:  # raised where each is awaited
            for member in batch.members:
                member.error = member.error or error
        finally:
            batch.end(self._executor.ended)

    def _look(self, lane: _Lane[I, T], batch: Batch[I, T]) -> None:
        """Have another thread take over the rest where a call hangs."""
        if lane.batch is not batch:
            return
        lane.drop_done()
        if not batch.hangs():
            loop = asyncio.get_running_loop()
            lane.look = loop.call_later(_SLOW_SECONDS, self._look, lane, batch)
            return
        rest = batch.split()
        lane.batch = None
        if rest is not None:
            self._start(lane, rest)
        else:
            self._call(lane)

    def _deliver(self, lane: _Lane[I, T], batch: Batch[I, T]) -> None:
        for member in batch.members:
            if member.future.done():
                continue
            if member.error is not None:
                member.future.set_exception(member.error)
            else:
                member.future.set_result(member.result)  # type: ignore[arg-type]  # T may be None
        if lane.batch is batch:
            lane.batch = None
            if lane.look is not None:
                lane.look.cancel()
            self._call(lane)
