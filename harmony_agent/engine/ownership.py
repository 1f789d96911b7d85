"""Whose a resource is: what the ledger says, and the record that is made before anything is done to what is ours.

Changes the ledger alone, never the resource.
"""

from __future__ import annotations

from typing import Any

from harmony_agent.core.reconcile import Act, Plan, Record, Wait
from harmony_agent.core.status import Outcome
from harmony_agent.engine.book import Book
from harmony_agent.engine.parts import Pass


class Ownership:
    """What is ours, by the book's records. The same for every kind."""

    def __init__(self, book: Book) -> None:
        self._book = book

    def last_seen(self, this: Pass) -> Any:
        """Enough to begin with for a new spec of what is ours: each change sees whether it still holds."""
        record = self._book.records.get(this.key)
        if record is None or record.spec_digest == this.desired.digest or not self._owns(this):
            return None
        return this.reconciler.last_seen(this.key.name)

    def conflict(self, this: Pass, plan: Plan[Any]) -> Outcome | None:
        """Blocked where what is to be changed is somebody else's."""
        if not isinstance(plan, Act) or this.desired.spec.adopt or self._owns(this):
            return None
        disturbing = [action.reason for action in plan.actions if action.disturbs]
        if not disturbing:
            return None
        record = self._book.records.get(this.key)
        claims = this.reconciler.claims(this.desired.spec) - (record.claims if record else frozenset())
        what = ", ".join(sorted(claims))
        message = f"{what} exists, isn't ours and differs ({disturbing[0]}): take it away, or set adopt: true"
        return Outcome("Blocked", "OwnershipConflict", message, this.detail())

    async def claim(self, this: Pass, plan: Plan[Any]) -> bool:
        """Record that it is ours before anything is done to it; whether the record changed what may be done."""
        record, desired, owned = self._book.records.get(this.key), this.desired, self._owns(this)
        if owned and record is not None and record.spec_digest == desired.digest:
            return False
        if not owned and isinstance(plan, Wait):
            return False
        facts = dict(this.reconciler.facts(this.key.name, desired, this.observed))
        new = Record(
            kind=this.key.kind,
            name=this.key.name,
            deployment=desired.deployment,
            spec_digest=desired.digest,
            generation=desired.generation,
            on_remove=desired.spec.on_remove,
            claims=this.reconciler.claims(desired.spec) | (record.claims if record else frozenset()),
            applied=record.applied if record else "",
            facts=facts,
            needs=desired.spec.needs(),
        )
        if owned and record is not None and record.facts == facts:
            self._book.write_later(new)  # it is ours already: nothing that a crash could make doubtful
            return False
        await self._book.write(new)
        return True

    def _owns(self, this: Pass) -> bool:
        record = self._book.records.get(this.key)
        return record is not None and this.reconciler.claims(this.desired.spec) <= record.claims
