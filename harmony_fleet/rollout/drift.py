"""Differences between the fleet and its roster: findings with stable codes, and a safe response to
each. Pure.

A finding holds codes, names and digests, never a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from harmony_fleet.manifests.shared import content_of
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.observe.capabilities import kind_problem
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from harmony_fleet.rollout.plan import believed, implausible
from harmony_fleet.roster.model import RUN_PREFIX, Roster
from harmony_fleet.roster.projection import Projection
from scores.base import Score
from scores.canonical import digest
from scores.container import Container
from scores.keys import DeploymentKey
from scores.manifest import Manifest
from scores.status import ContainerDetail, ResourceStatus, UnitDetail
from scores.systemd_unit import SystemdUnit

Code = Literal[
    "roster-behind",
    "projection-differs",
    "projection-missing",
    "not-converged",
    "missing",
    "unexpected",
    "disabled-running",
    "unmanaged",
    "ownership-mismatch",
    "fenced",
    "signature-refused",
    "trust-differs",
    "heartbeat-stale",
    "capability-missing",
    "device-implausible",
]
RESPONSES: Final[Mapping[Code, str]] = {
    "roster-behind": "another copy of this home was applied, and apply is refused here: harmony fleet pull takes its "
    "roster; harmony fleet apply --take-over makes this one the fleet's",
    "projection-differs": "look with harmony fleet plan, then harmony fleet apply writes it from the roster",
    "projection-missing": "look with harmony fleet plan, then harmony fleet apply writes it from the roster",
    "not-converged": "wait, or see harmony status --resources: the device repairs by itself what it can",
    "missing": "see why with harmony logs; harmony fleet apply where the projection differs too",
    "unexpected": "see who started it; harmony fleet apply stops it where the projection differs, else the agent does",
    "disabled-running": "harmony fleet apply stops it: disabled wins over running",
    "unmanaged": "left alone: it is never adopted, renamed or removed; ask whose it is",
    "ownership-mismatch": "left alone, and holds apply up; to own it from now on: harmony fleet apply --take-over",
    "fenced": "somebody else wrote: see harmony status, then apply again with the right roster",
    "signature-refused": "where the projection differs too, harmony fleet apply signs it; else put the key of "
    "harmony fleet key list into [trust] keys there; one that nobody here wrote: see who writes to NATS",
    "trust-differs": "set [trust] keys there as harmony fleet key list shows them, and restart the agent; before a key "
    "is retired every device has to trust its successor",
    "heartbeat-stale": "look at the device and its network; its manifests wait for it",
    "capability-missing": "on the device, harmony-agent check says how to mend it; it gets nothing new until then",
    "device-implausible": "what the device says can't be so, or can't be read: it is passed over, and the others go "
    "on; look at the device, and at who has its credentials",
}
_FENCED: Final = frozenset({"StaleGeneration", "LineageChanged", "GenerationReused"})
_DISTRUSTED: Final = frozenset({"SignatureMissing", "SignatureUnknownKey", "SignatureInvalid"})
_UP: Final = frozenset({"active", "activating", "reloading", "refreshing"})


MAX_STRAYS: Final = 50
"""Deployments of which nothing but a device's own status is left, as after the loss of NATS."""


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One difference. `detail` is made of codes, generations and digests."""

    device: str
    deployment: str
    resource: str
    code: Code
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        place = {
            "device": self.device or None,
            "deployment": self.deployment or None,
            "resource": self.resource or None,
        }
        return {"code": self.code, **place, "detail": self.detail, "response": RESPONSES[self.code]}


@dataclass(frozen=True, slots=True)
class Fleet:
    """State that was read: the roster with its projections, and the buckets.

    `now` is the server's time.
    """

    roster: Roster
    projections: Mapping[DeploymentKey, Projection]
    deployments: Mapping[DeploymentKey, Deployment]
    devices: Mapping[str, Device]
    now: datetime
    signing: Signing = UNSIGNED

    def found(self, key: DeploymentKey) -> Deployment:
        """Both sides of a deployment; empty where the buckets hold nothing."""
        return self.deployments.get(key) or Deployment(key, Desired(), Actual())

    def device(self, name: str) -> Device:
        """A device as it told of itself, or as one that never did."""
        return self.devices.get(name) or Device(name, None)

    def expected(self) -> Iterator[tuple[DeploymentKey, Projection]]:
        """The projections that are to be there: those of disabled devices only where something
        is.
        """
        for key, projection in self.projections.items():
            if not projection.only_there or there(self.found(key)):
                yield key, projection

    def crowded(self) -> dict[str, list[DeploymentKey]]:
        """Devices with more strays than may be believed, and those: anybody can say anything of
        their own device.
        """
        found: dict[str, list[DeploymentKey]] = {}
        for key, deployment in self.deployments.items():
            if key not in self.projections and stray(deployment):
                found.setdefault(key.device, []).append(key)
        return {name: keys for name, keys in found.items() if len(keys) > MAX_STRAYS}

    def ours(self, found: Deployment) -> bool:
        """Return whether the roster's lineage wrote what is desired there, or else what is
        enforced.
        """
        standing, status = found.desired.manifest, found.actual.status
        if standing is not None:
            return standing.lineage == self.roster.lineage
        return status is not None and status.lineage == self.roster.lineage


def there(found: Deployment) -> bool:
    """Return whether anything is desired or enforced."""
    status, standing = found.actual.status, found.desired.manifest
    return (standing is not None and not standing.removed) or (
        status is not None and status.phase != "Removed"
    )


def stray(found: Deployment) -> bool:
    """Return whether a device's word is all there is of it."""
    return (
        found.desired.manifest is None
        and not found.desired.problem
        and _says_something(found.actual)
    )


def _says_something(actual: Actual) -> bool:
    return bool(actual.problem) or (actual.status is not None and actual.status.phase != "Removed")


def classify(fleet: Fleet) -> list[Finding]:
    """Every difference, in order."""
    return sorted({*_devices(fleet), *_expected(fleet), *_others(fleet)})


def _devices(fleet: Fleet) -> Iterator[Finding]:
    """Members that aren't heard of; strangers that are."""
    members = {device.name: device for device in fleet.roster.devices}
    for name, member in members.items():
        device = fleet.device(name)
        if member.enabled and device.silent(fleet.now):
            yield Finding(
                name, "", "", "heartbeat-stale", "never heard" if device.heard is None else ""
            )
        if device.problem:
            yield Finding(
                name, "", "", "device-implausible", f"Unreadable: {device.problem} in device-info"
            )
        for what, field in (("containers", "unmanaged"), ("InvalidKey", "ignored_keys")):
            if names := _told(device, field):
                yield Finding(name, "", "", "unmanaged", f"{what} {' '.join(names)}")
        if differs := _trust(device, fleet.signing):
            yield Finding(name, "", "", "trust-differs", differs)
    for name, keys in fleet.crowded().items():
        detail = f"ImplausibleDeployments: {len(keys)} that stand nowhere else"
        yield Finding(name, "", "", "device-implausible", detail)
    for name, device in fleet.devices.items():
        if name not in members and not device.silent(fleet.now):
            yield Finding(name, "", "", "unmanaged", "NotInRoster")


def _told(device: Device, field: str) -> Sequence[str]:
    """Names that a device tells in a field of its DeviceInfo."""
    return getattr(device.info, field) if device.info is not None else ()


def _trust(device: Device, signing: Signing) -> str:
    """List the keys that the device lacks or still has.

    Empty if there are none, or if it told of no trust.
    """
    told = device.info.trust if device.info is not None else None
    if told is None or not signing.keys:
        return ""
    lacks = [key.id for key in signing.keys if key.id not in told.keys]
    still = sorted(signing.retired & set(told.keys))
    parts = (("lacks", lacks), ("still trusts", still))
    return ", ".join(f"{verb} {' '.join(which)}" for verb, which in parts if which)


def _expected(fleet: Fleet) -> Iterator[Finding]:
    for key, projection in fleet.expected():
        stands, device = fleet.found(key), fleet.device(key.device)
        found = believed(stands, device, fleet.signing)
        place = (key.device, key.deployment, "")
        strange = _strange(fleet, found)
        if strange:
            yield Finding(*place, "ownership-mismatch", strange)
            continue
        problem = kind_problem(projection.manifest, device)
        if problem:
            yield Finding(*place, "capability-missing", problem)
        if found is not stands:
            yield Finding(
                *place, "projection-differs", "no key that the device trusts signed what stands"
            )
        else:
            yield from _written(place, found, projection, fleet.signing)
        yield from _enforced(place, found)
        yield from _resources(key, found, projection)


def _strange(fleet: Fleet, found: Deployment) -> str:
    """Reason why a deployment isn't ours. Empty if it is, or if there is none."""
    standing, status, ours = found.desired.manifest, found.actual.status, fleet.roster.lineage
    if found.desired.problem:
        return f"desired-state can't be read: {found.desired.problem}"
    if standing is not None and standing.lineage != ours:
        return f"desired by lineage {standing.lineage[:8]}"
    agreed = standing.supersedes if standing is not None else None
    if (
        status is not None
        and status.phase != "Removed"
        and status.lineage not in (None, ours, agreed)
    ):
        return f"enforced by lineage {(status.lineage or '')[:8]}"
    return ""


def _written(
    place: tuple[str, str, str], found: Deployment, projection: Projection, signing: Signing
) -> Iterator[Finding]:
    standing, wanted = found.desired.manifest, projection.manifest
    if standing is None:
        yield Finding(*place, "projection-missing", f"wanted {_short(wanted)}")
    elif standing.removed:
        yield Finding(*place, "projection-differs", f"removal stands, wanted {_short(wanted)}")
    elif content_of(standing) != content_of(wanted):
        yield Finding(
            *place, "projection-differs", f"{_short(standing)} stands, wanted {_short(wanted)}"
        )
    elif standing.generation < found.generation() and not implausible(found):
        yield Finding(
            *place,
            "projection-differs",
            f"generation {standing.generation} stands after a newer one",
        )
    elif unsigned := signing.problem(standing):
        yield Finding(*place, "projection-differs", unsigned)


def _enforced(place: tuple[str, str, str], found: Deployment) -> Iterator[Finding]:
    status, standing = found.actual.status, found.desired.manifest
    if found.actual.problem:
        yield Finding(*place, "device-implausible", f"Unreadable: {found.actual.problem}")
        return
    if implausible(found):
        yield Finding(*place, "device-implausible", f"ImplausibleGeneration: {found.generation()}")
    if status is None:
        yield Finding(*place, "not-converged", "no answer yet")
        return
    reasons = {status.reason, status.rejected.reason if status.rejected else ""}
    if status.phase == "Fenced" or reasons & _FENCED:
        yield Finding(*place, "fenced", " ".join(sorted(reasons & _FENCED)))
    elif reasons & _DISTRUSTED:
        yield Finding(*place, "signature-refused", " ".join(sorted(reasons & _DISTRUSTED)))
    elif status.phase != "Converged":
        yield Finding(*place, "not-converged", f"{status.phase} {status.reason}".strip())
    elif standing is not None and (status.generation or 0) < standing.generation:
        yield Finding(
            *place, "not-converged", f"generation {status.generation} of {standing.generation}"
        )


def _resources(key: DeploymentKey, found: Deployment, projection: Projection) -> Iterator[Finding]:
    status = found.actual.status
    if status is None or status.phase == "Removed":
        return
    wanted = {score.key: score for score in projection.manifest.scores}
    for name, resource in status.resources.items():
        code = _resource(wanted.get(name), resource, disabled=projection.only_there)
        if code is not None:
            yield Finding(
                key.device,
                key.deployment,
                name,
                code,
                f"{resource.phase} {resource.reason}".strip(),
            )


def _resource(score: Score | None, resource: ResourceStatus, *, disabled: bool) -> Code | None:
    if resource.reason in ("OwnershipConflict", "LedgerLost"):
        return "unmanaged"
    if resource.reason == "OwnedByAnotherDeployment":
        return "ownership-mismatch"
    want, runs = _wants_to_run(score), _runs(resource)
    if runs and disabled and want is not None:
        return "disabled-running"
    if runs and want is False:
        return "unexpected"
    return (
        "missing"
        if want and runs is False and resource.phase not in ("Completed", "Pending")
        else None
    )


def _wants_to_run(score: Score | None) -> bool | None:
    """None where it is nobody's business."""
    if isinstance(score, SystemdUnit):
        return None if score.wanted_state == "none" else score.wanted_state == "running"
    return score.state == "running" if isinstance(score, Container) else None


def _runs(resource: ResourceStatus) -> bool | None:
    """Return whether the resource runs.

    None if the device saw nothing of it, or a condition keeps a unit from starting.
    """
    detail = resource.status
    if isinstance(detail, UnitDetail):
        return (
            None
            if detail.condition is False and detail.active_state == "inactive"
            else detail.active_state in _UP
        )
    return detail.state in ("Running", "Paused") if isinstance(detail, ContainerDetail) else None


def _others(fleet: Fleet) -> Iterator[Finding]:
    """Keys for which nothing is projected: ours that are to go, and those of others."""
    expected, crowded = {key for key, _ in fleet.expected()}, fleet.crowded()
    for key, found in fleet.deployments.items():
        if key in expected or not _matters(found) or (key.device in crowded and stray(found)):
            continue
        place = (key.device, key.deployment, "")
        if not fleet.ours(found):
            lineage = _lineage(found)
            yield Finding(
                *place, "unmanaged", f"of lineage {lineage[:8]}" if lineage else "of no lineage"
            )
        elif not key.deployment.startswith(RUN_PREFIX):
            yield Finding(*place, "projection-differs", "NotInRoster: it is to be removed")


def _matters(found: Deployment) -> bool:
    return (
        there(found)
        or found.desired.manifest is not None
        or bool(found.desired.problem or found.actual.problem)
    )


def _lineage(found: Deployment) -> str:
    standing, status = found.desired.manifest, found.actual.status
    return (
        standing.lineage
        if standing is not None
        else (status.lineage or "" if status is not None else "")
    )


def _short(manifest: Manifest) -> str:
    return digest(content_of(manifest))[:19]


def codes(findings: Iterable[Finding]) -> dict[Code, int]:
    """Count the findings of each code."""
    counted: dict[Code, int] = {}
    for finding in findings:
        counted[finding.code] = counted.get(finding.code, 0) + 1
    return counted
