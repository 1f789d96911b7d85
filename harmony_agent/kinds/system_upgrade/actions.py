"""SystemUpgrade: the one step that there is."""

from __future__ import annotations

from harmony_agent.core.actions import Action
from harmony_agent.core.frozen import frozen
from harmony_agent.topology.updater import Ask


@frozen(kw_only=True)
class RequestUpgrade(Action):
    """Ask the updater for the attempt."""

    ask: Ask
    is_disruptive: bool = False
