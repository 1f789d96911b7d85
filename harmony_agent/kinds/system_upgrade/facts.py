"""Facts of an attempt in the ledger, as JSON and typed."""

from __future__ import annotations

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord


@frozen()
class UpgradeFacts:
    """The attempt, which is followed to its end without the Score. `known` is the attempt that the
    updater has answered for.
    """

    attempt_id: str = ""
    run_uid: str = ""
    known: str = ""


def read(record: OwnershipRecord | None) -> UpgradeFacts:
    """The facts in a record; unknown keys of another version are left out."""
    raw = record.facts if record is not None else {}
    return UpgradeFacts(
        **{key: raw[key] for key in UpgradeFacts.__dataclass_fields__ if key in raw}
    )


def write(facts: UpgradeFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    found = {"attempt_id": facts.attempt_id, "run_uid": facts.run_uid, "known": facts.known}
    return {key: value for key, value in found.items() if value}
