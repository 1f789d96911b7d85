"""Manifests enforced without being followed: what was accepted before this start, and what would be
if it came.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from harmony_agent.core.admission import (
    DeviceView,
    EnforcedVersion,
    KindRules,
    NotAccepted,
    admit_manifest,
)
from harmony_agent.core.manifests import digests_of, generations_of
from harmony_agent.core.resources import Key
from harmony_agent.core.unverified import identity
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.topology.control_plane import StoredManifest
from scores.base import Score
from scores.manifest import InvalidManifest, WireManifest, bound, parse
from scores.signatures import content_digest

log = logging.getLogger(__name__)


def restore(state: DeviceState, device: str, stored: StoredManifest) -> tuple[Any, set[Key]] | None:
    """Enforce what was accepted before; its JSON value, and the keys to work on.

    None where it can't be read: then nothing of it is touched.
    """
    try:
        value = parse(stored.data)
        manifest = bound(value, device=device, deployment=stored.deployment, accepted=True)
    except InvalidManifest as error:
        message = f"the accepted manifest can't be read ({error.code}): nothing of it is touched"
        log.error("%s: %s", stored.deployment, message)  # noqa: TRY400  # what is wrong stands in the code
        state.deployment(stored.deployment).last_known_version = EnforcedVersion(
            stored.lineage, stored.generation, stored.digest
        )
        state.set_not_accepted(
            stored.deployment, NotAccepted("Held", "ManifestUnreadable", message)
        )
        return None
    # An agent of before took the digest of all bytes, signatures as well.
    return value, state.enforce(replace(stored, digest=content_digest(value)), manifest)


def view_of(
    state: DeviceState,
    kinds: Mapping[str, KindRules],
    name: str,
    reserved: Collection[tuple[str, Score]] = (),
) -> DeviceView:
    """Make the device as a manifest of the deployment `name` is judged by it. `reserved` are Scores
    that other deployments, each named before its Score, may have to make again.
    """
    taken: dict[str, str] = {}
    for owner, score in reserved:
        claims = kinds[score.kind].claims(score) if score.kind in kinds else ()
        taken |= dict.fromkeys((score.key, *claims), owner)
    for key, record in state.records.items():
        if record.deployment != name:
            taken |= dict.fromkeys((str(key), *record.claims), record.deployment)
    for key, desired in state.desired.items():
        if desired.deployment != name:
            claims = kinds[key.kind].claims(desired.spec) if key.kind in kinds else ()
            taken |= dict.fromkeys((str(key), *claims), desired.deployment)
    return DeviceView(kinds, state.has(name), taken)


def enforce_if_accepted(
    state: DeviceState, kinds: Mapping[str, KindInstance], manifest: WireManifest
) -> NotAccepted | None:
    """Have a book whose ledger keeps nothing enforce `manifest`, or tell why the agent would refuse
    it.
    """
    data = manifest.canonical()
    last = state.deployment(manifest.deployment).last
    found = identity(last, parse(data), data)
    admission = {name: KindRules(kind.admit, kind.claims) for name, kind in kinds.items()}
    verdict = admit_manifest(last, manifest, found, view_of(state, admission, manifest.deployment))
    if isinstance(verdict, NotAccepted):
        return verdict
    digests = digests_of(manifest.scores, state.desired)
    generations = generations_of(digests, manifest.generation, state.desired)
    stored = StoredManifest(
        manifest.deployment, manifest.lineage, manifest.generation, found, data, generations
    )
    state.enforce(stored, manifest, digests)
    return None
