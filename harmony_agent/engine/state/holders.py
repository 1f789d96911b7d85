"""Index of the records by claim.

Kept in step by the book, so that a resource finds who holds what it wants at no cost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harmony_agent.core.resources import Key, OwnershipRecord


class Holders:
    """By claim, the keys whose records have it."""

    def __init__(self, records: Iterable[OwnershipRecord]) -> None:
        self._keys: dict[str, set[Key]] = {}
        for record in records:
            self.change(None, record)

    def of(self, claim: str) -> Collection[Key]:
        """List who has `claim`."""
        return self._keys.get(claim, ())

    def change(self, old: OwnershipRecord | None, new: OwnershipRecord | None) -> None:
        """Take one record in place of another; None stands for none."""
        before = old.claims if old is not None else frozenset()
        now = new.claims if new is not None else frozenset()
        if old is not None:
            for claim in before - now:
                self._keys[claim].discard(old.key)
                if not self._keys[claim]:
                    del self._keys[claim]
        if new is not None:
            for claim in now - before:
                self._keys.setdefault(claim, set()).add(new.key)
