"""Session: the steps that a plan is made of. Each is idempotent; ids and reasons only, never a
value.
"""

from __future__ import annotations

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen


@frozen(kw_only=True)
class Create(Action):
    """Record a new token, then create the session with it."""

    is_disruptive: bool = False


@frozen(kw_only=True)
class Kill(Action):
    """End it, if it still has the token."""

    id: str
    token: str


@frozen(kw_only=True)
class Rename(Action):
    """Give it its name back."""

    id: str
    token: str


@frozen(kw_only=True)
class Respawn(Action):
    """Run its command anew. `ended` is the run that ended by itself and is counted, "" for none."""

    id: str
    token: str
    pane: str
    run: str
    ended: str = ""
    exit_code: int | None = None


@frozen(kw_only=True)
class Conclude(Action):
    """Record that this run was its last: it has ended, and `restart` says that it stays like that."""

    run: str
    exit_code: int | None
    is_disruptive: bool = False


SessionAction = Create | Kill | Rename | Respawn | Conclude
