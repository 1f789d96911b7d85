"""When a pass may act, and when the next one comes: crash loops, drift that something keeps bringing back, retries.

Asks the queue to hold a key; acts on nothing itself.
"""

from __future__ import annotations

from typing import Any, Final

from harmony_agent.core import drift
from harmony_agent.core.backoff import RETRY, CrashLoop
from harmony_agent.core.errors import ResourceError, Terminal, Transient
from harmony_agent.core.reconcile import Act, Key
from harmony_agent.core.status import Outcome
from harmony_agent.engine.book import Book
from harmony_agent.engine.loops import defect
from harmony_agent.engine.parts import Memory, Pass, Times
from harmony_agent.engine.queue import WorkQueue

REFUSED: Final = 5.0
"""Seconds that lie at least between tries of a removal that is refused, however many events there are."""


class Pacing:
    """The same for every kind; an Outcome that it returns is what the pass ends with."""

    def __init__(self, book: Book, queue: WorkQueue, times: Times) -> None:
        self._book = book
        self._queue = queue
        self._times = times

    def hold_back(self, this: Pass, plan: Act[Any]) -> Outcome | None:
        """Pace what crashes, report what is only to be reported, back off from what something else keeps undoing."""
        if not plan.drift:
            return None
        reasons = "; ".join(action.reason for action in plan.actions)
        record = self._book.records.get(this.key)
        # otherwise it ended by itself, or a new spec is on its way
        drifted = not plan.again and record is not None and record.applied == this.desired.version
        if drifted and this.desired.spec.drift == "report":
            return self._report(this, plan, reasons)  # whatever else this pass was let through for
        acted, this.acted = this.acted, True
        if plan.again:
            # By the same steps: it was started in this very pass and ended again. By others: it isn't started yet.
            steps = tuple(type(action) for action in plan.actions)
            counts, this.again = this.again in ((), steps), steps
            return self.crash(this, reasons) if counts else None
        return self._drift(this, plan, reasons) if drifted and not acted else None

    def crash(self, this: Pass, reasons: str) -> Outcome | None:
        """What had ended by itself is started anew at a growing distance."""
        now = self._times.clock.monotonic()
        crash = this.memory.crash = this.memory.crash or CrashLoop()
        wait = crash.wait(now)
        if wait <= 0:
            crash.started(now)
            return None
        self._queue.hold(this.key, wait)
        return Outcome("Degraded", "CrashLoop", f"{reasons}; next start in {wait:.0f} s", this.detail())

    def _report(self, this: Pass, plan: Act[Any], reasons: str) -> Outcome:
        episode = self._episode(this, plan, report=True)
        return Outcome("Degraded", "DriftReported", reasons, this.detail(), episode.shown())

    def _episode(self, this: Pass, plan: Act[Any], *, report: bool) -> drift.Episode:
        now, wire_now = self._times.clock.monotonic(), self._times.wire_now()
        this.memory.episode = drift.seen(this.memory.episode, plan.fields, now, wire_now, report=report)
        return this.memory.episode

    def _drift(self, this: Pass, plan: Act[Any], reasons: str) -> Outcome | None:
        now, episode = self._times.clock.monotonic(), self._episode(this, plan, report=False)
        wait = episode.wait(now)
        if wait <= 0:
            episode.repaired(now)
            return None
        self._queue.hold(this.key, wait)
        message = f"something keeps undoing this ({reasons}); next repair in {wait:.0f} s"
        return Outcome("Degraded", "Contended", message, this.detail(), episode.shown())

    def failed(self, key: Key, memory: Memory, error: ResourceError) -> Outcome:
        """A transient error is tried again, a terminal one not until the spec changes.

        What is taken off has no spec that could change: it is tried again as long as it is there, and at once when an
        event says that it differs; but trying it may be what the events come from.
        """
        if isinstance(error, Terminal) or not isinstance(error, Transient):
            if memory.version:
                memory.failed = Outcome("Failed", error.reason, str(error))
                return memory.failed
            memory.tries += 1
            delay = RETRY.delay(memory.tries, self._times.jitter())
            self._queue.hold(key, min(delay, REFUSED), latest=delay)
            return Outcome("Degraded", error.reason, str(error))
        memory.tries += 1
        self._queue.hold(key, RETRY.delay(memory.tries, self._times.jitter()) if error.delay is None else error.delay)
        return Outcome(error.phase, error.reason, str(error))

    def defect(self, key: Key, memory: Memory, error: Exception) -> Outcome:
        """An unforeseen error is tried again, too."""
        name = defect(str(key), error)
        memory.tries += 1
        self._queue.hold(key, RETRY.delay(memory.tries, self._times.jitter()))
        return Outcome("Degraded", "InternalError", f"a defect of the agent ({name}): see its log")
