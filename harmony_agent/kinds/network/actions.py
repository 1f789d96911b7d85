"""Network: the steps that a plan is made of. Each is idempotent."""

from __future__ import annotations

from dataclasses import dataclass

from harmony_agent.core.actions import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(Action):
    """Create it."""

    is_disruptive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove(Action):
    """Remove it, once no container is in it."""


NetworkAction = Create | Remove
