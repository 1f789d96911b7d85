"""SystemUpgrade: the one step that there is."""

from __future__ import annotations

from dataclasses import dataclass

from harmony_agent.core.actions import Action
from harmony_agent.topology.updater import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUpgrade(Action):
    """Ask the updater for the attempt."""

    ask: Ask
    is_disruptive: bool = False
