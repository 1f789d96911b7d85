"""Volume: the steps that a plan is made of. Each is idempotent."""

from __future__ import annotations

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen


@frozen(kw_only=True)
class Create(Action):
    """Create it, empty."""

    is_disruptive: bool = False


@frozen(kw_only=True)
class RemoveData(Action):
    """Remove it with its data, once no container has it."""


VolumeAction = Create | RemoveData
