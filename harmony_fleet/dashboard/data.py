"""Data of the dashboard: counts, codes, names and ages, never a value. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from harmony_fleet.observe.view import GROUPS, FleetView

MOST: Final = 300
"""Devices, and errors, that are listed; the counts are of all."""


def dashboard(view: FleetView, now: datetime, *, connected: bool) -> dict[str, Any]:
    """All of it. Devices that are silent come first, then those that were heard longest ago."""
    tallies = view.deployments()
    ages = sorted(
        ((_age(view.heard(name), now), name) for name in view.devices()),
        key=lambda item: (item[0] is not None, -(item[0] or 0.0), item[1]),
    )
    stale = set(view.stale(now))
    return {
        "connected": connected,
        "devices": {"all": len(ages), "stale": len(stale)},
        "totals": {group: sum(tally.counts[group] for tally in tallies) for group in GROUPS},
        "deployments": [{"name": tally.deployment, **tally.counts} for tally in tallies],
        "errors": [
            {
                "device": key.device,
                "deployment": key.deployment,
                "phase": told.phase,
                "reason": told.reason,
                "age": _age(told.created, now),
            }
            for key, told in view.errors(MOST)
        ],
        "heard": [
            {"device": name, "age": age, "stale": name in stale} for age, name in ages[:MOST]
        ],
    }


def _age(then: datetime | None, now: datetime) -> float | None:
    return None if then is None else round(max(0.0, (now - then).total_seconds()), 1)
