"""Which resource waits for which: what it needs, what is in its way, what has to go before it; and waking it then.

Asks the queue to add a key; acts on nothing itself.
"""

from __future__ import annotations

from harmony_agent.core.order import in_the_way, outlives, unmet
from harmony_agent.core.reconcile import Key, Record
from harmony_agent.core.status import Outcome
from harmony_agent.engine.book import Book
from harmony_agent.engine.parts import Pass
from harmony_agent.engine.queue import WorkQueue
from scores.status import Detail, ResourcePhase


class Dependencies:
    """The order of work between resources; an Outcome that it returns is what the pass ends with."""

    def __init__(self, book: Book, queue: WorkQueue) -> None:
        self._book = book
        self._queue = queue
        self._waiting: dict[str, set[Key]] = {}

    def __len__(self) -> int:
        """How many resources are waited for."""
        return len(self._waiting)

    def gate(self, this: Pass) -> Outcome | None:
        """Pending where what it needs isn't settled, or where what leaves is in its way."""
        record = self._book.records.get(this.key)
        idle = this.reconciler.spec_type.restarts and not this.reconciler.instance(this.observed)
        if record is not None and record.applied == this.desired.version and not idle:
            return None
        waits = unmet(this.desired.spec.needs(), self._book.digests(), self._book.statuses)
        leaving = self._book.leaving(this.desired.deployment)
        if leaving:
            waits += in_the_way(this.reconciler.claims(this.desired.spec), this.key, leaving)
        return self._wait_for(this.key, waits, "Pending", this.detail())

    def gate_removal(self, key: Key, record: Record, detail: Detail | None) -> Outcome | None:
        """Removing where what needs it hasn't gone yet."""
        first = outlives(record, self._book.leaving(record.deployment))
        return self._wait_for(key, first, "Removing", detail)

    def wake(self, other: str) -> None:
        """`other` settled or is gone: whoever waited for it may go on."""
        for key in self._waiting.pop(other, ()):
            self._queue.add(key)

    def _wait_for(self, key: Key, others: list[str], phase: ResourcePhase, detail: Detail | None) -> Outcome | None:
        for other in others:
            self._waiting.setdefault(other, set()).add(key)
        if not others:
            return None
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return Outcome(phase, "WaitsFor", f"waits for {', '.join(others[:3])}{more}", detail)
