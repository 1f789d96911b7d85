"""Guards: what an apply believes of a device, and how much it may take off it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from harmony_fleet.errors import Refused
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from scores.keys import DeploymentKey
from scores.manifest import FieldError, WireManifest
from scores.status import DeploymentStatus

MAX_JUMP: Final = 1_000_000
"""Generations by which a device's word may be ahead of what stands: an honest one is ahead where
buckets were lost.
"""


def believed(found: Deployment, device: Device, signing: Signing) -> Deployment:
    """Leave out the desired manifest if the device, by its own word, can't have accepted it.

    A manifest that no trusted key signed belongs to nobody. Its generation and lineage must not
    hold the right one up.
    """
    desired, told = found.desired, device.info.trust if device.info is not None else None
    if (
        not signing.keys
        or told is None
        or not told.require
        or (desired.manifest is None and not desired.problem)
    ):
        return found
    if desired.manifest is not None and not signing.problem(
        desired.manifest
    ):  # signed by every active key
        return found
    value = desired.manifest.wire() if desired.manifest is not None else desired.raw
    if not signing.forged(value, told.keys):
        return found
    return replace(found, desired=Desired(revision=desired.revision, created=desired.created))


def implausible(found: Deployment) -> bool:
    """Return whether what the device says is further ahead of what stands than any history of this
    deployment explains.
    """
    return found.generation() - found.desired.generation() > MAX_JUMP


def pruned(wire: WireManifest, found: Deployment) -> tuple[list[str], int]:
    """The resources that this generation would take off the device, and how many it owns now."""
    standing, status = found.desired.manifest, found.actual.status
    if status is not None and status.generation is not None and status.phase != "Removed":
        owned = set(status.resources) | _coming(standing, status)
    else:
        owned = {score.key for score in standing.scores} if standing is not None else set()
    orphaned = {
        score.key for score in (standing.scores if standing else ()) if score.on_remove == "orphan"
    }
    return sorted(owned - {score.key for score in wire.scores} - orphaned), len(owned)


def _coming(standing: WireManifest | None, status: DeploymentStatus) -> set[str]:
    """The resources of a generation that the device hasn't answered for yet: it may have begun with
    it.
    """
    newest = max(
        status.generation or 0,
        (status.rejected.generation or 0) if status.rejected is not None else 0,
    )
    return (
        {score.key for score in standing.scores}
        if standing is not None and standing.generation > newest
        else set()
    )


def check_prune(wire: WireManifest, found: Deployment) -> None:
    """Raise Refused where more would go than the manifest allows."""
    if wire.removed:
        return
    going, owned = pruned(wire, found)
    if len(going) <= 1 or len(going) * 2 <= owned or len(going) <= (wire.allow_prune or 0):
        return
    raise Refused(
        "PruneGuard",
        f"cannot apply {found.key.deployment} to {found.key.device}: "
        f"it would remove {len(going)} of {owned} resources: {_some(going)}",
        f"if that is meant: --allow-prune {len(going)}",
        [FieldError("allow_prune", "PruneGuard")],
        alone=not _prunes_what_stands(wire, found.desired.manifest),
    )


def _prunes_what_stands(wire: WireManifest, standing: WireManifest | None) -> bool:
    """Return whether the written manifests alone arm the guard, whatever the device says that it
    has.
    """
    going, owned = pruned(
        wire, Deployment(DeploymentKey(wire.device, wire.deployment), Desired(standing), Actual())
    )
    return len(going) > 1 and len(going) * 2 > owned


def _some(keys: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(keys[:most])
    return shown + (f" and {len(keys) - most} more" if len(keys) > most else "")
