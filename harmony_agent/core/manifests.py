"""From a manifest to what is wanted of each resource. Pure."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from harmony_agent.core.resources import Desired, Key
from scores.base import Score
from scores.canonical import canonical, digest
from scores.manifest import WireManifest
from scores.systemd_unit import SystemdUnit


def reuse_validated(value: Any, known: Mapping[bytes, Score]) -> Any:
    """A manifest's JSON with each Score that stood just so in the enforced one in place of its
    JSON.

    To validate and to digest a Score costs ten times as much as to see that it is the same.
    """
    scores = value.get("scores") if known and isinstance(value, dict) else None
    if not isinstance(scores, list):
        return value
    return {**value, "scores": [known.get(wire_fingerprint(score), score) for score in scores]}


def wire_fingerprint(score: Any) -> bytes:
    """Fingerprint of a JSON value. Tells 1 from 1.0 and from true."""
    return hashlib.blake2b(marshal.dumps(score, 0), digest_size=16).digest()


def digests_of(
    scores: Iterable[Score], old: Mapping[Key, Desired[Score]] | None = None
) -> dict[str, str]:
    """The digest of each spec, by its key, made once for each; those of `old` aren't made again."""
    found = {}
    for score in scores:
        before = old.get(Key(score.kind, score.name)) if old else None
        found[score.key] = (
            before.digest if before is not None and before.spec is score else score.spec_digest()
        )
    return found


def desired_of(
    manifest: WireManifest, generations: Mapping[str, int], digests: Mapping[str, str] | None = None
) -> dict[Key, Desired[Score]]:
    """Each Score of a manifest with its digest and what its restart_on and reload_on stand for."""
    digests = digests_of(manifest.scores) if digests is None else digests
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


def generations_of(
    digests: Mapping[str, str], generation: int, old: Mapping[Key, Desired[Score]]
) -> dict[str, int]:
    """The generation in which each spec last changed, given what is wanted until now."""
    found = {}
    for text, digest_ in digests.items():
        before = old.get(Key.parse(text))
        found[text] = (
            before.generation if before is not None and before.digest == digest_ else generation
        )
    return found


class DesiredDigests(Mapping[Key, str]):
    """A view of desired specs as their digests."""

    def __init__(self, desired: Mapping[Key, Desired[Score]]) -> None:
        self._desired = desired

    def __getitem__(self, key: Key) -> str:
        return self._desired[key].digest

    def __iter__(self) -> Any:
        return iter(self._desired)

    def __len__(self) -> int:
        return len(self._desired)
