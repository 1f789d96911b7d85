"""Network: the steps that a plan is made of. Each is idempotent."""

from __future__ import annotations

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen


@frozen(kw_only=True)
class Create(Action):
    """Create it."""

    is_disruptive: bool = False


@frozen(kw_only=True)
class Remove(Action):
    """Remove it, once no container is in it."""


NetworkAction = Create | Remove
