"""Facts of a network in the ledger, as JSON and typed."""

from __future__ import annotations

from dataclasses import asdict

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord


@frozen()
class NetworkFacts:
    """`made`: nothing was there when it was claimed, so that what is there is of our making."""

    made: bool = False


def read(record: OwnershipRecord | None) -> NetworkFacts:
    """The facts in a record; unknown keys of another version are left out."""
    return NetworkFacts(bool(record.facts.get("made"))) if record is not None else NetworkFacts()


def write(facts: NetworkFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    return asdict(facts)
