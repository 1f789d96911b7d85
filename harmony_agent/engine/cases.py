"""Collect the engine's knowledge of one resource for a decision.

Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harmony_agent.core.decide import Case, Now, Others
from harmony_agent.core.reconcile import Facts, Key, Plan
from harmony_agent.engine.book import Book
from harmony_agent.engine.parts import Pass


def wanted(book: Book, this: Pass, plan: Plan[Any], now: Now) -> Case:
    """A resource that is wanted."""
    return Case(
        this.key,
        this.desired,
        book.records.get(this.key),
        plan,
        _others(book, this.desired.deployment),
        now,
        claims=this.reconciler.claims(this.desired.spec),
        idle=this.reconciler.spec_type.restarts and not this.reconciler.instance(this.observed),
        memory=this.memory,
        acted=this.acted,
        restarted=this.again,
        taken=[book.records[Key(this.key.kind, name)] for name in taken(this)],
    )


def taken(this: Pass) -> Mapping[str, Facts]:
    """List what others of its kind give up to it, as the facts that each keeps."""
    return this.reconciler.taken(this.key.name, this.desired, this.observed)


def leaving(book: Book, key: Key, plan: Plan[Any], now: Now) -> Case:
    """A resource that is wanted no more."""
    record = book.records.get(key)
    return Case(key, None, record, plan, _others(book, record.deployment if record else ""), now)


def _others(book: Book, deployment: str) -> Others:
    return Others(book.digests(), book.statuses, book.leaving(deployment))
