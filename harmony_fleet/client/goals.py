"""The goal of a wait for what stands in ``desired-state``."""

from __future__ import annotations

from harmony_fleet.errors import InvalidInput
from harmony_fleet.observe.state import Deployment
from harmony_fleet.observe.wait import Target, target_of
from harmony_fleet.rollout.apply import gone


def goal_of(found: Deployment, *, removed: bool) -> Target | None:
    """Return the target to wait for. None if it is removed already."""
    standing = found.desired.manifest
    if removed:
        if gone(found):
            return None
        return (
            target_of(standing)
            if standing and standing.removed
            else Target(found.key, "", 0, removed=True)
        )
    if standing is None:
        raise InvalidInput(
            "NotFound", f"cannot wait for {found.key}: it isn't desired", "harmony apply writes it"
        )
    if standing.removed:
        raise InvalidInput(
            "BeingRemoved", f"cannot wait for {found.key}: it is to be removed", "use --for removed"
        )
    return target_of(standing)
