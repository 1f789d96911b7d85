"""Counts what passes did, and asks the queue for the next try after an error. `core.decide` reads
the counts.
"""

from __future__ import annotations

from typing import Final

from harmony_agent.core.backoff import RETRY, CrashLoop
from harmony_agent.core.changes import Moment
from harmony_agent.core.decide import Now, RetryState
from harmony_agent.core.errors import ResourceError, Terminal, Transient
from harmony_agent.core.resources import Key
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Execute
from harmony_agent.engine.loops import defect
from harmony_agent.engine.reconcile.context import ReconcileContext, Times
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from scores.status import Drift

REFUSED: Final = 5.0
"""Seconds that lie at least between tries of a removal that is refused, however many events there
are.
"""


class Pacing:
    """The same for every kind."""

    def __init__(self, queue: WorkQueue, times: Times) -> None:
        self._queue = queue
        self._times = times

    def now(self) -> Now:
        """The moment, for a decision."""
        return Now(self._times.clock.monotonic(), self._times.wire_now())

    def moment(self) -> Moment:
        """The moment, for a change."""
        return self._times.moment()

    def look_again(self, key: Key, at: float | None) -> None:
        """Have the queue come back at this time of the wall clock."""
        if at is not None:
            self._queue.add(key, max(0.001, at - self._times.clock.now()))

    def count(self, this: ReconcileContext, step: Execute) -> None:
        """Note what is about to be done, so that the next decision keeps its distance."""
        if step.plan.drift:
            this.acted = True
            if step.plan.is_restart:
                this.restarted = tuple(type(action) for action in step.plan.actions)
        if step.paced == "crash":
            self.start(this.memory)
        elif step.episode is not None:
            this.memory.episode = step.episode

    def done(self, step: Execute) -> None:
        """Count a repair once it is done: an attempt that failed was undone by nobody."""
        if step.episode is not None:
            step.episode.repaired(self._times.clock.monotonic())

    def start(self, memory: RetryState) -> float:
        """Seconds until a start is due; 0 notes it as begun now."""
        now = self._times.clock.monotonic()
        crash = memory.crash = memory.crash or CrashLoop()
        wait = crash.wait(now)
        if wait <= 0:
            crash.started(now)
        return wait

    def still_acting(self, this: ReconcileContext) -> Outcome:
        """End a pass that acted as often as it may and isn't done: its own actions may make the
        events.
        """
        wait = self.hold_still_acting(this.key, this.memory)
        message = f"not as wanted yet; looking again in {wait:.0f} s"
        return Outcome("Progressing", "StillActing", message, this.detail(), this.drift())

    def hold_still_acting(self, key: Key, memory: RetryState) -> float:
        """Back off, from a second to a minute; returns the seconds. No event makes it sooner."""
        memory.tries += 1
        wait = RETRY.delay(memory.tries + 1, self._times.jitter())
        self._queue.hold(key, wait)
        return wait

    def failed(self, key: Key, memory: RetryState, error: ResourceError) -> Outcome:
        """Try again after a transient error; after a terminal one, only when the spec changes.

        A removal has no spec that could change, so it is tried again until it is done. An event
        makes that sooner, but never sooner than `REFUSED`: the tries may make the events.
        """
        if isinstance(error, Terminal) or not isinstance(error, Transient):
            if memory.version:
                memory.failed = Outcome("Failed", error.reason, str(error), drift=_shown(memory))
                return memory.failed
            memory.tries += 1
            delay = RETRY.delay(memory.tries, self._times.jitter())
            self._queue.hold(key, min(delay, REFUSED), latest=delay)
            return Outcome("Degraded", error.reason, str(error))
        memory.tries += 1
        self._queue.hold(
            key,
            RETRY.delay(memory.tries, self._times.jitter()) if error.delay is None else error.delay,
        )
        return Outcome(error.phase, error.reason, str(error), drift=_shown(memory))

    def defect(self, key: Key, memory: RetryState, error: Exception) -> Outcome:
        """Try again after an unforeseen error, too."""
        name = defect(str(key), error)
        memory.tries += 1
        self._queue.hold(key, RETRY.delay(memory.tries, self._times.jitter()))
        return Outcome("Degraded", "InternalError", f"a defect of the agent ({name}): see its log")


def _shown(memory: RetryState) -> Drift | None:
    """The drift whose repair failed, as the status shows it."""
    return memory.episode.shown() if memory.episode is not None else None
