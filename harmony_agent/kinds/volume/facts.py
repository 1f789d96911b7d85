"""Facts of a volume in the ledger, as JSON and typed."""

from __future__ import annotations

from dataclasses import asdict

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord


@frozen()
class VolumeFacts:
    """`made`: nothing was there when it was claimed, so that what is there is of our making."""

    made: bool = False


def read(record: OwnershipRecord | None) -> VolumeFacts:
    """The facts in a record; unknown keys of another version are left out."""
    return VolumeFacts(bool(record.facts.get("made"))) if record is not None else VolumeFacts()


def write(facts: VolumeFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    return asdict(facts)
