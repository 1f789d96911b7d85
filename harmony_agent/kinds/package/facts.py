"""Facts of a package in the ledger: there are none."""

from __future__ import annotations

from dataclasses import asdict

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord


@frozen()
class PackageFacts:
    """Nothing is remembered of a package."""


def read(record: OwnershipRecord | None) -> PackageFacts:
    """The facts in a record; what another version wrote is left out."""
    del record
    return PackageFacts()


def write(facts: PackageFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    return asdict(facts)
