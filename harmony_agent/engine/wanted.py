"""From a manifest to what is wanted of each resource. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from harmony_agent.core.reconcile import Desired, Key
from scores.base import Score
from scores.canonical import canonical, digest
from scores.manifest import WireManifest
from scores.systemd_unit import SystemdUnit


def desired_of(manifest: WireManifest, generations: Mapping[str, int]) -> dict[Key, Desired[Any]]:
    """Each Score of a manifest with its digest and what its restart_on and reload_on stand for."""
    digests = {score.key: score.spec_digest() for score in manifest.scores}
    return {
        Key(score.kind, score.name): Desired(
            spec=score,
            digest=digests[score.key],
            generation=generations.get(score.key, manifest.generation),
            deployment=manifest.deployment,
            restart_token=_token(score.restart_on, digests),
            reload_token=_token(score.reload_on, digests) if isinstance(score, SystemdUnit) else "",
        )
        for score in manifest.scores
    }


def _token(keys: Collection[str], digests: Mapping[str, str]) -> str:
    return digest(canonical([[key, digests[key]] for key in sorted(keys)])) if keys else ""


def generations_of(scores: Iterable[Score], generation: int, old: Mapping[Key, Desired[Any]]) -> dict[str, int]:
    """The generation in which each spec last changed, given what is wanted until now."""
    found = {}
    for score in scores:
        before = old.get(Key(score.kind, score.name))
        same = before is not None and before.digest == score.spec_digest()
        found[score.key] = before.generation if same and before is not None else generation
    return found
