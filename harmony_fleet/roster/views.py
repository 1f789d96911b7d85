"""Items of a roster as they are listed and shown. Pure; no value of a variable, an override or a
Score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from harmony_fleet.roster.model import Roster, RosterDeployment, RosterDevice, Schedule, Selector


def _device(roster: Roster, item: RosterDevice) -> dict[str, Any]:
    chosen = [one.name for one in roster.deployments if one.select.picks(item)]
    return {
        "name": item.name,
        "class": item.device_class,
        "labels": dict(sorted(item.labels.items())),
        "enabled": item.enabled,
        "desired_state": item.desired_state,
        "deployments": chosen,
        "variables": sorted(item.variables),
        "overrides": {
            name: fields for name in sorted(item.overrides) if (fields := item.overridden(name))
        },
    }


def _deployment(roster: Roster, item: RosterDeployment) -> dict[str, Any]:
    return {
        "name": item.name,
        "select": _selector(item.select),
        "source": item.file or "inline",
        "digest": item.digest,
        "rollout": item.rollout.wire() if item.rollout is not None else None,
        "devices": [one.name for one in roster.devices if item.select.picks(one)],
    }


def _schedule(roster: Roster, item: Schedule) -> dict[str, Any]:
    return {
        "name": item.name,
        "cron": item.cron,
        "enabled": item.enabled,
        "select": _selector(item.select),
        "deadline": item.deadline,
        "start_within": item.start_within,
        "max_unavailable": item.max_unavailable,
        "canary": item.canary,
        "devices": [one.name for one in roster.picked(item.select)],
    }


def _selector(select: Selector) -> dict[str, Any]:
    return {
        "class": select.device_class,
        "labels": dict(sorted(select.labels.items())),
        "exclude": list(select.exclude),
    }


VIEWS: Final[Mapping[str, Callable[[Roster, Any], dict[str, Any]]]] = {
    "devices": _device,
    "deployments": _deployment,
    "schedules": _schedule,
}
