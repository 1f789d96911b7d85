"""Plan an apply of the roster for every device at once. Pure.

Every device is planned before anything is written. One refusal holds all of them up.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.errors import (
    DeviceFailed,
    ExitCode,
    HarmonyError,
    Refused,
    worst,
)
from harmony_fleet.observe.state import Deployment
from harmony_fleet.rollout.fleet import Fleet, stray, there
from harmony_fleet.rollout.plan import ApplyRequest, Plan, plan
from harmony_fleet.roster.model import RUN_PREFIX
from scores.canonical import digest
from scores.keys import DeploymentKey
from scores.manifest import Manifest

_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Scope:
    """Limits of an apply.

    No `devices` means all. `allow_prune` counts resources at each device, `allow_removals` counts
    devices that lose a whole deployment.
    """

    devices: frozenset[str] = frozenset()
    take_over: bool = False
    allow_prune: int | None = None
    allow_removals: int | None = None
    follow: bool = False

    def as_json(self) -> dict[str, Any]:
        """As a saved plan keeps it."""
        words = {
            "take_over": self.take_over,
            "allow_prune": self.allow_prune,
            "allow_removals": self.allow_removals,
        }
        return {"devices": sorted(self.devices), **words, "follow": self.follow}


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Writes and purges, of which roster and buckets.

    `unchanged` counts the deployments to leave.
    """

    lineage: str
    generation: int
    content: str
    buckets: str
    scope: Scope
    plans: tuple[Plan, ...] = ()
    purges: tuple[tuple[DeploymentKey, int], ...] = ()
    removing: tuple[DeploymentKey, ...] = ()
    unchanged: int = 0
    refusals: tuple[tuple[DeploymentKey, HarmonyError], ...] = ()
    overridden: tuple[tuple[DeploymentKey, tuple[str, ...]], ...] = ()
    """fields (``Container/web.memory``) that are otherwise at a device to be written"""

    @property
    def empty(self) -> bool:
        """Return whether there is nothing to do."""
        return not (self.plans or self.purges)

    def as_json(self) -> dict[str, Any]:
        """Return the plan for a file and for ``-o json``: names, generations and digests."""
        return {
            "api": "harmony/v1",
            "kind": "FleetPlan",
            "lineage": self.lineage,
            "generation": self.generation,
            "content": self.content,
            "buckets": self.buckets,
            "scope": self.scope.as_json(),
            "writes": [_write(item) for item in self.plans],
            "purges": [
                {"device": key.device, "deployment": key.deployment, "revision": at}
                for key, at in self.purges
            ],
            "unchanged": self.unchanged,
            "overridden": [
                {"device": key.device, "deployment": key.deployment, "fields": list(fields)}
                for key, fields in self.overridden
            ],
            "refused": [
                {
                    "device": key.device,
                    "deployment": key.deployment,
                    "code": error.code,
                    "message": error.message,
                }
                for key, error in self.refusals
            ],
        }


def _write(item: Plan) -> dict[str, Any]:
    wire = item.wire
    return {
        "device": wire.device,
        "deployment": wire.deployment,
        "action": item.action,
        "generation": wire.generation,
        "digest": digest(wire.canonical()),
        "revision": item.revision,
        "changes": [change.as_json() for change in item.changes],
    }


def plan_fleet(fleet: Fleet, scope: Scope) -> FleetPlan:
    """Plan for every device in scope. Refusals are in the plan, and never raised."""
    plans: list[Plan] = []
    purges: list[tuple[DeploymentKey, int]] = []
    removing: list[DeploymentKey] = []
    refusals: list[tuple[DeploymentKey, HarmonyError]] = []
    unchanged = 0
    for key, manifest in _wanted(fleet, scope.devices):
        found = fleet.found(key)
        standing = found.desired.manifest
        if manifest.removed and standing is not None and _standing_removal(found):
            if removal_done(found):
                purges.append((key, found.desired.revision))
                continue
            if not fleet.signing.problem(standing):
                removing.append(key)
                continue
        wish = ApplyRequest(
            manifest,
            fleet.roster.lineage,
            scope.take_over,
            scope.allow_prune,
            fleet.signing,
            scope.follow,
            fleet.roster.shares_lineage,
        )
        try:
            item = plan(wish, found, fleet.device(key.device))
        except HarmonyError as error:
            refusals.append((key, error))
            continue
        if item.action == "unchanged":
            unchanged += 1
        else:
            plans.append(item)
    refusals += [*_held(fleet, scope.devices), *_strays(fleet, scope.devices)]
    refusals += _emptied(fleet, scope, plans)
    roster = fleet.roster
    named = (roster.lineage, roster.generation, roster.content_digest(), _fingerprint(fleet), scope)
    return FleetPlan(
        *named,
        tuple(plans),
        tuple(purges),
        tuple(removing),
        unchanged,
        tuple(refusals),
        tuple(_overridden(fleet, plans)),
    )


def _overridden(
    fleet: Fleet, plans: Sequence[Plan]
) -> Iterator[tuple[DeploymentKey, tuple[str, ...]]]:
    for item in plans:
        member = fleet.roster.device(item.wire.device)
        fields = member.overridden(item.wire.deployment) if member is not None else ()
        if fields and not item.wire.removed:
            yield DeploymentKey(item.wire.device, item.wire.deployment), tuple(fields)


def _fingerprint(fleet: Fleet) -> str:
    """Fingerprint of the buckets, as far as a plan rests on it: the writer and generation of each
    deployment.
    """
    hashed = hashlib.sha256()
    for key, found in sorted(fleet.deployments.items()):
        created = found.desired.created.isoformat() if found.desired.created else ""
        hashed.update(f"{key} {found.desired.revision} {created} {found.generation()}\n".encode())
    return f"sha256:{hashed.hexdigest()}"


def _wanted(fleet: Fleet, devices: Collection[str]) -> Iterator[tuple[DeploymentKey, Manifest]]:
    """Iterate over the keys with their manifests, in order: projections, then removals of ours that
    have no projection.
    """
    wanted = {key: projection.manifest for key, projection in fleet.expected()}
    crowded, held = fleet.crowded(), fleet.held()
    for key, found in fleet.deployments.items():
        if (
            key in fleet.projections
            or key in held
            or key in fleet.waiting
            or key.deployment.startswith(RUN_PREFIX)
            or not fleet.managed(found)
        ):
            continue
        if found.desired.manifest is not None or (stray(found) and key.device not in crowded):
            wanted[key] = Manifest(deployment=key.deployment, removed=True)
    return iter(
        sorted((key, item) for key, item in wanted.items() if not devices or key.device in devices)
    )


def _held(fleet: Fleet, devices: Collection[str]) -> Iterator[tuple[DeploymentKey, HarmonyError]]:
    """Each deployment whose file changed, once, if a device in scope has it."""
    told: set[str] = set()
    for key, error in fleet.held().items():
        if (not devices or key.device in devices) and key.deployment not in told:
            told.add(key.deployment)
            yield key, error


def _strays(fleet: Fleet, devices: Collection[str]) -> Iterator[tuple[DeploymentKey, HarmonyError]]:
    """Devices that speak of more deployments than this roster ever gave any: none of those is
    planned for.
    """
    for name, keys in sorted(fleet.crowded().items()):
        if not devices or name in devices:
            yield (
                keys[0],
                DeviceFailed(
                    "ImplausibleDeployments",
                    f"cannot remove what {name} says that it has: {len(keys)} deployments that stand nowhere else",
                    "look at the device; to remove one of them: harmony delete",
                    alone=True,
                ),
            )


def _emptied(
    fleet: Fleet, scope: Scope, plans: Sequence[Plan]
) -> list[tuple[DeploymentKey, HarmonyError]]:
    """The prune guard for whole deployments: from how large a share of the devices something would
    go.

    Who names the devices has said so.
    """
    going = [item for item in plans if item.action == "remove"]
    losing = {item.wire.device for item in going}
    having = {
        key.device
        for key, found in fleet.deployments.items()
        if there(found)
        and (fleet.ours(found) if key in fleet.projections else fleet.managed(found))
    }
    count = len(losing)
    if (
        scope.devices
        or count <= 1
        or count * 2 <= len(having)
        or count <= (scope.allow_removals or 0)
    ):
        return []
    names = ", ".join(sorted({item.wire.deployment for item in going})[:_TOLD])
    error = Refused(
        "PruneGuard",
        f"cannot apply the roster: it would take whole deployments off {count} of {len(having)} devices: {names}",
        f"if that is meant: harmony fleet apply --allow-removals {count}",
    )
    return [(DeploymentKey(going[0].wire.device, going[0].wire.deployment), error)]


def _standing_removal(found: Deployment) -> bool:
    standing = found.desired.manifest
    return standing is not None and standing.removed and standing.generation == found.generation()


def removal_done(found: Deployment) -> bool:
    """Return whether the device says of the removal that stands that it is done."""
    standing, status = found.desired.manifest, found.actual.status
    if standing is None or status is None:
        return False
    return status.phase == "Removed" and (status.lineage, status.generation) == (
        standing.lineage,
        standing.generation,
    )


def check_refusals(made: FleetPlan) -> None:
    """Raise what keeps an apply from beginning, all of it. What is one device's word keeps nothing
    else.
    """
    found = [error for _, error in made.refusals if not error.alone]
    if not found:
        return
    code = worst(error.exit_code for error in found)
    first = next(error for error in found if error.exit_code is code)
    details = [error.message for error in found[:_TOLD]]
    more = len(found) - len(details)
    raised = type(first)(
        first.code,
        f"cannot apply the roster: {len(found)} of its deployments are refused, and nothing was written",
        first.hint,
        first.errors,
        details=[*details, *([f"and {more} more"] if more else [])],
    )
    raise raised


def refused_code(made: FleetPlan) -> ExitCode:
    """The refusals' share in the exit code."""
    return worst(error.share if error.alone else error.exit_code for _, error in made.refusals)
