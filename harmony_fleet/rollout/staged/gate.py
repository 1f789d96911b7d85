"""The desired state of each device while rollouts are under way, and what the buckets say of them.
Pure.

A device whose turn hasn't come keeps what stands: its projection is replaced by that. So plans,
applies and checks need to know nothing else of rollouts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from harmony_fleet.manifests.shared import content_of
from harmony_fleet.observe.state import Deployment
from harmony_fleet.rollout.fleet import Fleet, stray
from harmony_fleet.rollout.fleet_plan import removal_done
from harmony_fleet.rollout.staged.advance import HAVE, Seen, advance
from harmony_fleet.rollout.staged.begin import Wanted, begin, joined
from harmony_fleet.rollout.staged.record import Rollout, Target
from harmony_fleet.roster.model import RosterDeployment
from harmony_fleet.roster.policy import RolloutPolicy
from harmony_fleet.roster.projection import Projection
from scores.base import Score
from scores.keys import DeploymentKey
from scores.manifest import Manifest, WireManifest

Formers = Mapping[DeploymentKey, Manifest | None]
"""What stood before at the keys that go back; None: nothing did."""
_MADE: Final[dict[int, tuple[Sequence[Score], Manifest]]] = {}
_MOST: Final = 1000
FORMER_GONE: Final = (
    "FormerGone",
    "the bucket holds what stood before no longer, or nobody here signed it",
)


def staged(fleet: Fleet) -> list[RosterDeployment]:
    """The deployments that reach their devices in waves, and whose file is as the roster says."""
    return [
        one
        for one in fleet.roster.deployments
        if one.rollout is not None and one.name not in fleet.changed
    ]


def keys_of(fleet: Fleet, deployment: RosterDeployment) -> list[DeploymentKey]:
    """The keys of a deployment that get new content: those of enabled devices, in the roster's
    order. One of which only the device tells, as after the loss of NATS, waits for nothing.
    """
    keys = (DeploymentKey(device.name, deployment.name) for device in fleet.roster.devices)
    return [
        key
        for key in keys
        if key in fleet.projections
        and not fleet.projections[key].only_there
        and not stray(fleet.found(key))
    ]


def content(fleet: Fleet, keys: Sequence[DeploymentKey]) -> str:
    """The digest of what is wanted at `keys`."""
    hashed = hashlib.sha256()
    for key in sorted(keys):
        body = hashlib.sha256(content_of(fleet.projections[key].manifest)).digest()
        hashed.update(key.device.encode() + b"\0" + body)
    return f"sha256:{hashed.hexdigest()}"


def carried_on(
    fleet: Fleet, records: Mapping[str, Rollout], formers: Formers
) -> dict[str, Rollout]:
    """The records after what the buckets hold: begun where something differs, replaced where the
    roster wants something else by now, else advanced.
    """
    after: dict[str, Rollout] = {}
    for deployment in staged(fleet):
        keys = keys_of(fleet, deployment)
        if not keys or deployment.rollout is None:
            continue
        record = records.get(deployment.name)
        if record is not None and is_current(fleet, record, keys):
            record = _joined(fleet, record, keys, deployment.rollout)
        elif differing := _differing(fleet, keys):
            named = (deployment.name, fleet.roster.lineage, fleet.roster.generation)
            wanted = Wanted(*named, content(fleet, keys), deployment.rollout)
            record = begin(wanted, differing, fleet.now, record)
        else:
            continue
        after[deployment.name] = advance(record, _known(fleet, record, formers), fleet.now)
    return after


def is_current(fleet: Fleet, record: Rollout, keys: Sequence[DeploymentKey]) -> bool:
    """Return whether the roster wants of each device of the rollout what it wanted, as far as it
    still means that device.
    """
    meant = {key.device: key for key in keys}
    still = [target for target in record.targets if target.device in meant]
    return bool(still) and all(
        record.wants(target) == content_digest(fleet.projections[meant[target.device]].manifest)
        for target in still
    )


def _joined(
    fleet: Fleet, record: Rollout, keys: Sequence[DeploymentKey], policy: RolloutPolicy
) -> Rollout:
    """The record with the devices that are meant by now, under the policy of now. After a rollout
    that succeeded, a further device waits for nobody.
    """
    record = record.model_copy(update={"policy": policy})
    known = {target.device for target in record.targets}
    news = [key for key in keys if key.device not in known]
    more = {} if record.phase == "Succeeded" else _differing(fleet, news)
    return joined(record, {key.device for key in keys}, more)


def _differing(fleet: Fleet, keys: Sequence[DeploymentKey]) -> dict[str, Seen]:
    """The devices where something else stands than is wanted."""
    return {
        key.device: _to_have(fleet, key)
        for key in keys
        if not _stands(fleet.found(key), fleet, key)
    }


def gated(fleet: Fleet, records: Mapping[str, Rollout], formers: Formers) -> Fleet:
    """The fleet with what is to be desired of each device for the time being."""
    projections, current = dict(fleet.projections), dict[str, Rollout]()
    waiting = set[DeploymentKey]()
    for deployment in staged(fleet):
        record = records.get(deployment.name)
        if record is None or not is_current(fleet, record, keys_of(fleet, deployment)):
            continue
        current[deployment.name] = record
        if record.phase == "Succeeded":
            continue
        for target in record.targets:
            key = DeploymentKey(target.device, record.deployment)
            if key in projections and target.state not in HAVE:
                del projections[key]
                if (made := _meanwhile(fleet, record, target, formers)) is not None:
                    projections[key] = Projection(made)
                elif key not in formers and not _is_absent(fleet.found(key)):
                    waiting.add(key)
    return replace(fleet, projections=projections, rollouts=current, waiting=frozenset(waiting))


def _meanwhile(fleet: Fleet, record: Rollout, target: Target, formers: Formers) -> Manifest | None:
    """The content of a device that is without the new one: what stood, as far as the record tells that
    it did.
    """
    key = DeploymentKey(target.device, record.deployment)
    standing = fleet.found(key).desired.manifest
    if target.state in ("returning", "returned") and key in formers:
        return formers[key]
    if standing is None or content_digest(standing) != record.stood(target):
        return None
    return as_manifest(standing)


def _is_absent(found: Deployment) -> bool:
    standing = found.desired.manifest
    return (standing is None or standing.removed) and not found.desired.problem


def content_digest(manifest: Manifest) -> str:
    """The digest of what an author decides."""
    return f"sha256:{hashlib.sha256(content_of(manifest)).hexdigest()}"


def as_manifest(wire: WireManifest) -> Manifest:
    """The author's part of a manifest that stands; made once for those that share their Scores."""
    known = _MADE.get(id(wire.scores))
    if known is None or known[0] is not wire.scores:
        if len(_MADE) > _MOST:
            _MADE.clear()
        made = Manifest(deployment=wire.deployment, scores=wire.scores)
        known = _MADE[id(wire.scores)] = (wire.scores, made)
    return known[1]


def _known(fleet: Fleet, record: Rollout, formers: Formers) -> dict[str, Seen]:
    return {
        target.device: _seen(
            fleet, target, DeploymentKey(target.device, record.deployment), formers
        )
        for target in record.targets
    }


def _seen(fleet: Fleet, target: Target, key: DeploymentKey, formers: Formers) -> Seen:
    if target.state in ("returning", "returned"):
        return _to_return(fleet, key, formers)
    return _to_have(fleet, key)


def _to_have(fleet: Fleet, key: DeploymentKey) -> Seen:
    """Knowledge of a device that is to have the roster's content."""
    found, device = fleet.found(key), fleet.device(key.device)
    told = Seen(
        device.silent(fleet.now),
        device.heard,
        revision=_revision(found),
        content=_word(fleet, found),
        wanted=_wanted(fleet, key),
    )
    if not _stands(found, fleet, key):
        return told
    return replace(told, written=True, **_enforced(found))


def _to_return(fleet: Fleet, key: DeploymentKey, formers: Formers) -> Seen:
    found, device = fleet.found(key), fleet.device(key.device)
    told = Seen(device.silent(fleet.now), device.heard)
    if key not in formers:
        return replace(told, refused=FORMER_GONE)
    former, standing = formers[key], found.desired.manifest
    if former is None:
        gone = standing is None or (standing.removed and removal_done(found))
        return replace(told, written=standing is None or standing.removed, converged=gone)
    if standing is None or standing.removed or content_of(standing) != content_of(former):
        return told
    return replace(told, written=True, **_enforced(found))


def _stands(found: Deployment, fleet: Fleet, key: DeploymentKey) -> bool:
    standing, wanted = found.desired.manifest, fleet.projections.get(key)
    return (
        standing is not None
        and wanted is not None
        and not standing.removed
        and content_of(standing) == content_of(wanted.manifest)
    )


def _wanted(fleet: Fleet, key: DeploymentKey) -> str:
    projection = fleet.projections.get(key)
    return "" if projection is None else content_digest(projection.manifest)


def _word(fleet: Fleet, found: Deployment) -> str | None:
    standing = found.desired.manifest
    if standing is None or standing.removed or not fleet.signing.signed_here(standing):
        return None
    return content_digest(standing)


def _revision(found: Deployment) -> int:
    standing = found.desired.manifest
    return 0 if standing is None or standing.removed else found.desired.revision


def _enforced(found: Deployment) -> dict[str, Any]:
    """The device's word on the manifest that stands."""
    standing, status = found.desired.manifest, found.actual.status
    if standing is None or status is None:
        return {"told": ("NoAnswer", "")}
    rejected = status.rejected
    if rejected is not None and rejected.generation == standing.generation:
        return {
            "refused": (rejected.reason, f"the device refuses generation {standing.generation}")
        }
    enforced = (status.lineage, status.generation) == (standing.lineage, standing.generation)
    if not enforced:
        return {"told": ("NoAnswer", f"it enforces generation {status.generation}")}
    told = (status.reason or status.phase, status.message)
    return {"converged": status.phase == "Converged", "told": told}
