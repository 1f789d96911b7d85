"""From a manifest to what is wanted of each resource. Pure."""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from harmony_agent.core.changes import newest
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, Key, OwnershipRecord, SecretState
from scores.base import Score
from scores.manifest import WireManifest
from scores.systemd_unit import SystemdUnit


@frozen()
class StoredManifest:
    """An accepted manifest as persisted: its canonical bytes, and what the fence needs."""

    deployment: str
    lineage: str
    generation: int
    digest: str
    data: bytes
    generations: Mapping[str, int]
    """resource key -> the generation in which its spec last changed"""


def fingerprints(value: Any) -> Sequence[bytes]:
    """The fingerprint of each Score in a manifest's JSON; empty where it has no list of them."""
    scores = value.get("scores") if isinstance(value, dict) else None
    return [wire_fingerprint(score) for score in scores] if isinstance(scores, list) else []


def reuse_validated(value: Any, prints: Sequence[bytes], known: Mapping[bytes, Score]) -> Any:
    """A manifest's JSON with each Score that stood just so in the enforced one in place of its
    JSON. `prints` are its fingerprints.

    To validate and to digest a Score costs ten times as much as to see that it is the same.
    """
    if not known or not prints:
        return value
    scores = zip(prints, value["scores"], strict=True)
    return {**value, "scores": [known.get(one, score) for one, score in scores]}


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
    manifest: WireManifest,
    generations: Mapping[str, int],
    digests: Mapping[str, str] | None = None,
    records: Mapping[Key, OwnershipRecord] | None = None,
    before: Mapping[Key, Desired[Score]] | None = None,
    *,
    secrets: Mapping[str, SecretState] = MappingProxyType({}),
) -> dict[Key, Desired[Score]]:
    """Each Score of a manifest with its digest, the last change of what it restarts and reloads on
    by `records`, and its secrets as they are in `secrets`.

    What is wanted as `before` stays the same object.
    """
    records = {} if records is None else records
    digests = digests_of(manifest.scores) if digests is None else digests
    before = {} if before is None else before
    found: dict[Key, Desired[Score]] = {}
    for score in manifest.scores:
        key = Key(score.kind, score.name)
        old, generation = before.get(key), generations.get(score.key, manifest.generation)
        follows = restarts_on(score) or reloads_on(score)
        uses = tuple(used for used in score.uses() if used in digests)
        held = secrets_of(score, secrets)
        same = old is not None and old.spec is score and (old.uses, old.secrets) == (uses, held)
        if old is not None and same and old.generation == generation and not follows:
            found[key] = old
            continue
        new = Desired(
            spec=score,
            digest=digests[score.key],
            generation=generation,
            deployment=manifest.deployment,
            restart_token=last_change(
                [key for key in restarts_on(score) if key in digests], records
            ),
            reload_token=last_change(reloads_on(score), records),
            uses=uses,
            secrets=held,
        )
        same = old is not None and old.version == new.version and old.uses == uses
        same = same and old is not None and old.secrets == held
        found[key] = old if old is not None and same else new
    return found


def secrets_of(score: Score, known: Mapping[str, SecretState]) -> tuple[SecretState, ...]:
    """The secrets that it names, as they are known."""
    return tuple(known.get(name, SecretState(name)) for name in score.secret_names())


def restarts_on(score: Score) -> Collection[str]:
    """The resources after whose change it is restarted, where they are of its manifest: those that
    it names, and the template of an instance.
    """
    template = score.template if isinstance(score, SystemdUnit) else ""
    return (*score.restart_on, f"SystemdUnit/{template}") if template else score.restart_on


def reloads_on(score: Score) -> Collection[str]:
    """The resources after whose change it is reloaded."""
    return score.reload_on if isinstance(score, SystemdUnit) else ()


def followers_of(wanted: Iterable[Desired[Score]]) -> dict[str, list[Key]]:
    """By resource key, what restarts or reloads when that changes."""
    found: dict[str, list[Key]] = {}
    for desired in wanted:
        spec = desired.spec
        for other in {*restarts_on(spec), *reloads_on(spec)}:
            found.setdefault(other, []).append(Key(spec.kind, spec.name))
    return found


def last_change(keys: Collection[str], records: Mapping[Key, OwnershipRecord]) -> str:
    """The token of `keys`: their last change. One that is under way counts when it is done."""
    found = (records.get(Key.parse(key)) for key in keys) if keys else ()
    return newest([record.changed for record in found if record is not None])


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
