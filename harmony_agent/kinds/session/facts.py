"""Facts of a session in the ledger, as JSON and typed. Ids, digests and numbers; never a value of
its environment.
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Facts, OwnershipRecord


@frozen()
class SessionFacts:
    """`token` is the session's own, recorded before it is created; "" where none was ever made.
    `made` tells what it was made from, "" where an older agent made it.

    `boot` is the one in which it was last made or started. `restarts` counts, `ended` and
    `exit_code` are of the run that was counted last. `concluded` is the run that was its last, and
    `final_code` its exit code. `restart_token` is the one that was acted on, `restart_from_run` the
    run that was there then: while it still is, the restart did not happen.
    """

    token: str = ""
    made: str = ""
    boot: str = ""
    restarts: int = 0
    ended: str = ""
    exit_code: int | None = None
    concluded: str = ""
    final_code: int | None = None
    restart_token: str = ""
    restart_from_run: str = ""


_NAMES = tuple(field.name for field in fields(SessionFacts))
_LATER = frozenset({"made"})
"""Fields that came later: written only where they are set, so that older facts stay as they are."""


def read(record: OwnershipRecord | None) -> SessionFacts:
    """The facts in a record; unknown keys of another version are left out."""
    raw: dict[str, Any] = dict(record.facts) if record is not None else {}
    return SessionFacts(**{name: raw[name] for name in _NAMES if name in raw})


def write(facts: SessionFacts) -> Facts:
    """The facts that `read` reads, as JSON gives them back."""
    return {name: value for name, value in asdict(facts).items() if value or name not in _LATER}
