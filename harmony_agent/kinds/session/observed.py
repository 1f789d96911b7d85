"""Observed state of a session, and what it was made from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import OwnershipRecord
from harmony_agent.kinds.session.facts import read
from harmony_agent.topology.sessions import Pane, SessionState
from scores.canonical import canonical, digest
from scores.session import Session

_MADE_OF: Final = {"command", "working_dir", "env", "env_files"}
"""The fields that go into the making; every other one takes effect without a new session."""
_VERSION: Final = "1"


@frozen()
class Observed:
    """Sessions under a resource's name.

    `main` is ours. `holder` has our name, but isn't ours. `ambiguous`: more than one says that it
    is ours. `env_files` are the desired spec's files, digests by path.
    """

    main: SessionState | None = None
    holder: SessionState | None = None
    ambiguous: bool = False
    env_files: Mapping[str, str | None] = field(default_factory=dict)


def sort_out(
    name: str, sessions: Sequence[SessionState], record: OwnershipRecord | None, installation: str
) -> Observed:
    """Tell our session from one that only has our name, or only says that it is ours."""
    token = read(record).token

    def is_ours(one: SessionState) -> bool:
        mark = one.mark
        if mark is None or mark.installation != installation or mark.resource != name:
            return False
        return mark.token == token if token else record is None

    ours = [one for one in sessions if is_ours(one)]
    holder = next((one for one in sessions if one.name == name and one not in ours), None)
    return Observed(ours[0] if ours else None, holder, ambiguous=len(ours) > 1)


def main_pane(session: SessionState) -> Pane | None:
    """The terminal that the session was made with; None where it was closed."""
    return next((pane for pane in session.panes if pane.main), None)


def run_of(session: SessionState, pane: Pane) -> str:
    """Tell one run of the command from another."""
    return f"{session.token}/{pane.id}/{pane.started}/{pane.pid}"


def start_of(run: str) -> int:
    """Seconds since 1970 at which this run began; 0 where `run` doesn't tell."""
    parts = run.split("/")
    return int(parts[-2]) if len(parts) > 2 and parts[-2].isdecimal() else 0


def made_from(spec: Session, env_files: Mapping[str, str | None]) -> str:
    """A digest of what the author set and that goes into the making."""
    made = spec.model_dump(mode="json", exclude_unset=True, include=_MADE_OF)
    if spec.env_files:
        made["env_files"] = [[path, env_files.get(path)] for path in spec.env_files]
    return f"{_VERSION}:{digest(canonical(made)).removeprefix('sha256:')}"
