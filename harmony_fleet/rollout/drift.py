"""Find the differences between the fleet and its roster. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from harmony_fleet.manifests.shared import content_of
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.observe.capabilities import kind_problem
from harmony_fleet.observe.state import Deployment, Device
from harmony_fleet.rollout.finding import Code, Finding
from harmony_fleet.rollout.fleet import Fleet, stray, there
from harmony_fleet.rollout.guards import believed, implausible
from harmony_fleet.roster.model import RUN_PREFIX
from harmony_fleet.roster.projection import Projection
from scores.base import Score
from scores.canonical import digest
from scores.container import Container
from scores.keys import DeploymentKey
from scores.manifest import Manifest
from scores.session import Session
from scores.status import ContainerDetail, ResourceStatus, SessionDetail, UnitDetail
from scores.systemd_unit import SystemdUnit

_FENCED: Final = frozenset({"StaleGeneration", "LineageChanged", "GenerationReused"})
_DISTRUSTED: Final = frozenset({"SignatureMissing", "SignatureUnknownKey", "SignatureInvalid"})
_UP: Final = frozenset({"active", "activating", "reloading", "refreshing"})


def classify(fleet: Fleet) -> list[Finding]:
    """Every difference, in order."""
    return sorted({*_devices(fleet), *_expected(fleet), *_others(fleet), *_rollouts(fleet)})


def _rollouts(fleet: Fleet) -> Iterator[Finding]:
    """Deployments whose newest content isn't everywhere yet, or is nowhere any more."""
    for key in fleet.waiting:
        detail = "what stands isn't this home's word; it stays until its wave"
        yield Finding(key.device, key.deployment, "", "projection-differs", detail)
    for name, rollout in fleet.rollouts.items():
        told = f"{rollout.phase} {rollout.reason}".rstrip()
        detail = f"{told}: {rollout.count('succeeded')} of {len(rollout.targets)} devices have it"
        if rollout.phase == "Running":
            yield Finding("", name, "", "rollout-under-way", detail)
        elif rollout.phase != "Succeeded":
            yield Finding("", name, "", "rollout-stopped", detail)


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
        for what, strays in _strays(device):
            if strays:
                yield Finding(name, "", "", "unmanaged", f"{what} {' '.join(strays)}")
        if names := _told(device, "disturbed"):
            yield Finding(name, "", "", "device-disturbed", " ".join(names))
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
            yield from _written(place, found, projection, fleet)
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
    place: tuple[str, str, str], found: Deployment, projection: Projection, fleet: Fleet
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
    elif unsigned := fleet.signing.problem(standing):
        yield Finding(*place, "projection-differs", unsigned)
    elif not fleet.managed(found):
        yield Finding(*place, "projection-differs", "AppliedByHand: apply takes it as it stands")


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
    elif "Reverted" in reasons:
        refused = status.rejected.generation if status.rejected else None
        told = f"from generation {refused} to {status.generation}: {status.message}"
        yield Finding(*place, "reverted", told)
    elif reasons & _DISTRUSTED:
        yield Finding(*place, "signature-refused", " ".join(sorted(reasons & _DISTRUSTED)))
    elif status.paused is not None:
        told = f"{status.phase} {status.reason}".strip()
        yield Finding(*place, "paused", f"until {status.paused.until}: {told}")
    elif status.phase != "Converged":
        yield Finding(*place, "not-converged", f"{status.phase} {status.reason}".strip())
    elif standing is not None and (status.generation or 0) < standing.generation:
        yield Finding(
            *place, "not-converged", f"generation {status.generation} of {standing.generation}"
        )


def _resources(key: DeploymentKey, found: Deployment, projection: Projection) -> Iterator[Finding]:
    status = found.actual.status
    if status is None or status.phase == "Removed" or status.paused is not None:
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
    """Return whether the resource shall run. None if nobody decided that."""
    if isinstance(score, SystemdUnit):
        return None if score.wanted_state == "none" else score.wanted_state == "running"
    if isinstance(score, Container) and score.schedule is not None:
        return None if score.state == "running" else False
    return score.state == "running" if isinstance(score, Container | Session) else None


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
    if isinstance(detail, SessionDetail):
        return detail.state == "Running"
    return detail.state in ("Running", "Paused") if isinstance(detail, ContainerDetail) else None


def _strays(device: Device) -> Iterator[tuple[str, Sequence[str]]]:
    """List the things that are nobody's, by sort, as the device tells of them."""
    told = _told(device, "unmanaged")
    sessions = [name for name in told if name.startswith("Session/")]
    yield "containers", [name for name in told if name not in sessions]
    yield "sessions", [name.removeprefix("Session/") for name in sessions]
    yield "InvalidKey", _told(device, "ignored_keys")


def _others(fleet: Fleet) -> Iterator[Finding]:
    """Keys for which nothing is projected: ours that are to go, and those of others."""
    expected, crowded = {key for key, _ in fleet.expected()} | fleet.held().keys(), fleet.crowded()
    expected |= fleet.waiting
    for name, error in fleet.changed.items():
        yield Finding("", name, "", "file-changed", error.code)
    for key, found in fleet.deployments.items():
        if key in expected or not _matters(found) or (key.device in crowded and stray(found)):
            continue
        place = (key.device, key.deployment, "")
        if not fleet.ours(found):
            lineage = _lineage(found)
            yield Finding(
                *place, "unmanaged", f"of lineage {lineage[:8]}" if lineage else "of no lineage"
            )
        elif key.deployment.startswith(RUN_PREFIX):
            continue
        elif fleet.managed(found):
            yield Finding(*place, "projection-differs", "NotInRoster: it is to be removed")
        else:
            stands = found.desired.manifest is not None
            detail = f"generation {found.generation()}" if stands else "only the device tells of it"
            yield Finding(*place, "applied-by-hand", detail)


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
