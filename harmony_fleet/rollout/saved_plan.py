"""A plan of the fleet, saved in a file and held to later."""

from __future__ import annotations

from typing import Final

from harmony_fleet.errors import (
    Conflict,
    InvalidInput,
)
from harmony_fleet.rollout.fleet_plan import FleetPlan, Scope
from scores.canonical import NotCanonical, canonical, read

_MAX_PLAN: Final = 256 * 1024 * 1024


def save(made: FleetPlan) -> bytes:
    """The plan as a file."""
    return canonical(made.as_json()) + b"\n"


def saved_scope(data: bytes) -> Scope:
    """The scope that a saved plan was made for. Raises InvalidInput where `data` is no plan."""
    try:
        value = read(data, _MAX_PLAN)
        scope = value["scope"]
        words = (scope["take_over"], scope["allow_prune"], scope["allow_removals"], scope["follow"])
        made = Scope(frozenset(scope["devices"]), *words)
        known = value["kind"] == "FleetPlan"
    except (NotCanonical, KeyError, TypeError):
        known = False
    if not known:
        raise InvalidInput(
            "NotAPlan", "cannot use this as a plan", "make one with: harmony fleet plan -o FILE"
        )
    return made


def check_saved(data: bytes, made: FleetPlan) -> None:
    """Raise where the plan in `data` isn't exactly the one that would be made now."""
    saved, now = read(data, _MAX_PLAN), read(save(made), _MAX_PLAN)
    if saved == now:
        return
    same_roster = all(saved.get(name) == now[name] for name in ("lineage", "generation", "content"))
    what = "the buckets" if same_roster else f"the roster, now at generation {now['generation']},"
    raise Conflict(
        "PlanStale",
        f"cannot apply the plan: {what} moved on since it was made",
        "make a new one: harmony fleet plan -o FILE",
    )
