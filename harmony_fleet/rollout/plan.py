"""Plan one apply at one device: the generation, the authority, the guards, the changes. Pure.

A guard refuses before anything is written. The device judges again by the same table; this only
tells sooner.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from harmony_fleet.errors import Conflict, DeviceFailed, InvalidInput
from harmony_fleet.manifests.diff import Change, diff_by_digest
from harmony_fleet.manifests.shared import bind_shared, content_of, diff_shared
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.observe.capabilities import check_kinds, check_secrets, check_trust
from harmony_fleet.observe.state import Deployment, Device
from harmony_fleet.rollout.guards import believed, check_prune, implausible
from scores.manifest import FieldError, Manifest, WireManifest
from scores.names import MAX_GENERATION

Action = Literal["create", "update", "remove", "adopt", "unchanged"]


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """Request of an operator, signed by `signing`.

    `allow_prune` None keeps the file's value. With `follow` the plan goes on from the generation
    that the device tells, however far ahead. A `roster` that shares its home's lineage notes what
    it writes, so that it knows it later from what was applied by hand.
    """

    manifest: Manifest
    lineage: str
    take_over: bool = False
    allow_prune: int | None = None
    signing: Signing = UNSIGNED
    follow: bool = False
    roster: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Manifest to write at `revision`; with `unchanged`, the present one. With `adopt` the present
    one is written once more as it is, beside the roster's `note`.

    `answered` is the status seen before.
    """

    action: Action
    wire: WireManifest
    revision: int
    answered: int
    changes: tuple[Change, ...] = ()
    warnings: tuple[str, ...] = ()
    note: str = ""

    @property
    def name(self) -> str:
        """``<device>/<deployment>``, for people."""
        return f"{self.wire.device}/{self.wire.deployment}"


def plan(request: ApplyRequest, found: Deployment, device: Device) -> Plan:
    """Decide. Raises InvalidInput, Conflict or Refused."""
    manifest, found = request.manifest, believed(found, device, request.signing)
    if request.allow_prune is not None:
        manifest = manifest.model_copy(update={"allow_prune": request.allow_prune})
    _check_named(manifest, found, request.lineage)
    _check_readable(found, request)
    _check_plausible(found, request)
    supersedes = _authority(manifest, found, request)
    standing = found.desired.manifest
    if standing is not None and _stands(manifest, found, supersedes, request):
        _check_generation(manifest, standing.generation)
        if request.roster and not request.signing.noted(standing, found.desired.note):
            note = request.signing.note(standing)
            return Plan("adopt", standing, found.desired.revision, 0, note=note)
        return Plan("unchanged", standing, found.desired.revision, 0)
    generation = found.generation() + 1
    _check_generation(manifest, generation)
    if generation > MAX_GENERATION:
        raise Conflict(
            "GenerationExhausted",
            f"cannot write {found.key}: no generation is left",
            "use another name",
            alone=True,
        )
    wire = request.signing.sign(
        bind_shared(manifest, found.key.device, request.lineage, generation, supersedes)
    )
    check_kinds(wire, device)
    check_secrets(wire, device)
    check_trust(wire, device)
    check_prune(wire, found)
    return Plan(
        _action(wire, found),
        wire,
        found.desired.revision,
        found.actual.revision,
        _changes(wire, found),
        tuple(_warnings(wire, found, device)),
        request.signing.note(wire) if request.roster else "",
    )


def _warnings(wire: WireManifest, found: Deployment, device: Device) -> Iterator[str]:
    standing = found.desired.manifest
    if device.problem:
        yield f"what {device.name} tells of itself can't be read: {device.problem}"
    elif device.info is None:
        yield f"{device.name} never told of itself: is the name right, does its agent run?"
    if standing is None:
        return
    if standing.signatures and not wire.signatures:
        yield (
            f"what stands at {found.key} is signed and this won't be, for there is no signing key here: a device that "
            "requires signatures refuses it"
        )
    elif content_of(wire) == content_of(standing) and wire.signatures != standing.signatures:
        yield f"{found.key} is signed anew; nothing else changes"


def _action(wire: WireManifest, found: Deployment) -> Action:
    if wire.removed:
        return "remove"
    old = found.desired.manifest
    status = found.actual.status
    known = (old is not None and not old.removed) or (
        status is not None and status.phase != "Removed"
    )
    return "update" if known or found.desired.problem else "create"


def _check_named(manifest: Manifest, found: Deployment, lineage: str) -> None:
    """A file that names a device or lineage is held to it."""
    if manifest.device is not None and manifest.device != found.key.device:
        raise InvalidInput(
            "DeviceMismatch",
            f"cannot apply {found.key.deployment} to {found.key.device}: the file is for {manifest.device}",
            "take device out of the file, or choose that device",
            [FieldError("device", "DeviceMismatch")],
        )
    if manifest.lineage is not None and manifest.lineage != lineage:
        raise Conflict(
            "LineageMismatch",
            f"cannot apply {found.key.deployment}: the file is of lineage {manifest.lineage}, "
            f"and this operator writes as {lineage}",
            "take lineage out of the file, or set --lineage or $HARMONY_LINEAGE",
            [FieldError("lineage", "LineageMismatch")],
        )


def _check_generation(manifest: Manifest, generation: int) -> None:
    if manifest.generation is not None and manifest.generation != generation:
        raise Conflict(
            "GenerationMismatch",
            f"cannot apply {manifest.deployment}: the file is for generation {manifest.generation}, "
            f"and {generation} is the one to write",
            "take generation out of the file, or look at what was written meanwhile with: harmony get",
            [FieldError("generation", "GenerationMismatch")],
        )


def _check_readable(found: Deployment, request: ApplyRequest) -> None:
    if found.actual.problem:
        raise DeviceFailed(
            "Unreadable",
            f"cannot tell the next generation of {found.key}: what the device says of it can't be read "
            f"({found.actual.problem})",
            "a newer agent may have written it: use a harmony of that version; else look at the device",
            alone=True,
        )
    if found.desired.problem and not request.take_over:
        raise Conflict(
            "DesiredUnreadable",
            f"cannot write {found.key}: what stands there can't be read ({found.desired.problem})",
            "if it may be written over: --take-over",
        )


def _check_plausible(found: Deployment, request: ApplyRequest) -> None:
    """A device that leads the generation on could lead it to where none is left."""
    if request.follow or not implausible(found):
        return
    raise DeviceFailed(
        "ImplausibleGeneration",
        f"cannot write {found.key}: the device speaks of generation {found.generation()}, and what stands is of "
        f"{found.desired.generation()}",
        "see who wrote that status; where it is right, as after the loss of NATS: --follow-generation",
        alone=True,
    )


def _authority(manifest: Manifest, found: Deployment, request: ApplyRequest) -> str | None:
    """Return the lineage to supersede; None if no other lineage is in the way. Raises Conflict
    without consent.
    """
    standing, status = found.desired.manifest, found.actual.status
    enforced = status.lineage if status is not None else None
    in_the_way = {
        lineage for lineage in (standing.lineage if standing else None, enforced) if lineage
    } - {request.lineage}
    if not in_the_way:
        return None
    agreed = {manifest.supersedes}
    if standing is not None and standing.lineage == request.lineage:
        agreed.add(standing.supersedes)
    if status is not None and status.phase == "Removed" and standing is None:
        agreed.add(enforced)  # nothing of theirs is left there
    if not request.take_over and not in_the_way <= agreed:
        other = enforced if enforced in in_the_way else next(iter(in_the_way))
        raise Conflict(
            "LineageChanged",
            f"cannot write {found.key}: it belongs to lineage {other}, and this operator writes as {request.lineage}",
            "to own it from now on: --take-over; else use that operator's $HARMONY_LINEAGE",
            alone=standing is None or standing.lineage == request.lineage,
        )
    replaced = enforced or (standing.lineage if standing else None)
    return None if replaced == request.lineage else replaced


def _stands(
    manifest: Manifest, found: Deployment, supersedes: str | None, request: ApplyRequest
) -> bool:
    """Return whether the desired manifest already says this, and nothing makes another write
    worthwhile.
    """
    standing, status = found.desired.manifest, found.actual.status
    if manifest.remains is not None:  # a decision, whatever stands
        return False
    if (
        standing is None
        or standing.lineage != request.lineage
        or content_of(standing) != content_of(manifest)
    ):
        return False
    if request.signing.problem(standing) or _respelt(standing, found):
        return False
    if standing.generation != found.generation():
        return False  # the bucket was restored: the device has seen a newer one
    if supersedes is not None and standing.supersedes != supersedes:
        return False
    held = (
        status is not None
        and status.rejected is not None
        and status.rejected.reason == "PruneGuard"
    )
    return not (held and (manifest.allow_prune or 0) > (standing.allow_prune or 0))


def _respelt(standing: WireManifest, found: Deployment) -> bool:
    """Return whether the device refuses the bytes that stand: the same content, in a spelling that
    no command here writes.
    """
    status = found.actual.status
    newer = status.rejected if status is not None else None
    return (
        newer is not None
        and newer.generation == standing.generation
        and newer.reason in ("GenerationReused", "SignatureInvalid", "NotCanonical")
    )


def _changes(wire: WireManifest, found: Deployment) -> tuple[Change, ...]:
    standing, status = found.desired.manifest, found.actual.status
    if standing is None and status is not None:
        return diff_by_digest(
            {key: item.spec_digest for key, item in status.resources.items()}, wire
        )
    return diff_shared(standing, wire)
