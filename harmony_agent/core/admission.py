"""The acceptance table: what becomes of a manifest that arrives. Fence, lineage, allowlist,
ownership, prune guard.

Pure. The answer is Accept, Unchanged or NotAccepted. After NotAccepted the last accepted manifest
stays enforced.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

from harmony_agent.core.frozen import frozen
from harmony_agent.core.refusal import advice_of
from scores.base import Score
from scores.manifest import MAX_ERRORS, FieldError, InvalidManifest, WireManifest

KeepPhase = Literal["Rejected", "Fenced", "Held"]
REVERTED: Final = "Reverted"
DELETES_DATA: Final = "delete-data"
"""An `on_remove` after which nothing is as before."""


@frozen()
class RefusedVersion:
    """A generation that the device went back from. `digest` is "" where its own state was lost.

    `generation` is newer than what is enforced, and never accepted again.
    """

    generation: int
    digest: str
    message: str


@frozen()
class EnforcedVersion:
    """The manifest that is enforced or, where the device's own state was lost, that
    ``actual-state`` shows. `refused` is newer.
    """

    lineage: str
    generation: int
    digest: str
    refused: RefusedVersion | None = None


@frozen()
class Accept:
    """Persist it, then converge to it."""


@frozen()
class Unchanged:
    """Already accepted: nothing to do."""


@frozen()
class NotAccepted:
    """Keep what is enforced and say why. `generation` is the newcomer's, if known."""

    phase: KeepPhase
    reason: str
    message: str
    errors: tuple[FieldError, ...] = ()
    generation: int | None = None


Admission = Accept | Unchanged | NotAccepted


@frozen()
class KindRules:
    """Rules of a kind for admission: what the configuration forbids of a Score, and what a Score
    occupies.
    """

    admit: Callable[[Score], Iterable[FieldError]]
    claims: Callable[[Score], frozenset[str]]


@frozen()
class DeviceView:
    """The device as admission sees it: its kinds, the deployment's records there, the owners of
    claims.
    """

    kinds: Mapping[str, KindRules]
    has: Mapping[str, str]
    """resource key -> its `on_remove`: of what the deployment owns, and of what is wanted and not
    made yet
    """
    taken: Mapping[str, str]
    """claim -> the deployment that wants or owns it; a resource's own name is the claim
    ``<Kind>/<name>``.
    """
    admitted: Collection[int] = ()
    """positions of Scores that this configuration allowed before, just as they are"""


def admit_manifest(
    last: EnforcedVersion | None, manifest: WireManifest, digest: str, device: DeviceView
) -> Admission:
    """Decide on a manifest that was decoded. `digest` is that of its content, by which a generation
    is known.
    """
    verdict = _fence(last, manifest, digest)
    if verdict is not None:
        return verdict
    losing = _reverting_loses(manifest, device)
    if losing is not None:
        return losing
    found = list(_forbidden(manifest, device))
    if found:
        errors = [error for error, _ in found]
        codes = {error.code for error in errors}
        reason = codes.pop() if len(codes) == 1 else "Invalid"
        return NotAccepted(
            "Rejected",
            reason,
            _list([_told(error, note) for error, note in found]),
            tuple(errors[:MAX_ERRORS]),
            manifest.generation,
        )
    return _prune_guard(manifest, device) or Accept()


def held_while_paused(generation: int, until: str) -> NotAccepted:
    """The verdict on a manifest that comes while its deployment is paused."""
    message = f"generation {generation} waits until the pause ends ({until}), or harmony resume"
    return NotAccepted("Held", "Paused", message, generation=generation)


def reverted(refused: RefusedVersion) -> NotAccepted:
    """The verdict on the generation that the device went back from."""
    return NotAccepted("Rejected", REVERTED, refused.message, generation=refused.generation)


def rejected(error: InvalidManifest, generation: int | None) -> NotAccepted:
    """The verdict on bytes that are no manifest."""
    return NotAccepted(
        "Rejected",
        error.code,
        _list([_told(one) for one in error.errors]),
        error.errors,
        generation,
    )


def _fence(last: EnforcedVersion | None, manifest: WireManifest, digest: str) -> Admission | None:
    """The rows on lineage and generation; None where it may go on."""
    if last is None:
        return None
    generation, refused = manifest.generation, last.refused
    if last.lineage not in (manifest.lineage, manifest.supersedes):
        return NotAccepted(
            "Fenced",
            "LineageChanged",
            f"lineage {manifest.lineage} does not supersede the enforced one, {last.lineage}",
            generation=generation,
        )
    if generation < last.generation:
        return NotAccepted(
            "Fenced",
            "StaleGeneration",
            f"generation {generation} is older than the enforced one, {last.generation}",
            generation=generation,
        )
    if generation == last.generation:
        return Unchanged() if digest == last.digest else _reused(generation)
    if refused is not None and generation <= refused.generation:
        return _again(refused, generation, digest)
    return None


def _again(refused: RefusedVersion, generation: int, digest: str) -> NotAccepted:
    """The verdict on what isn't newer than a generation that the device went back from."""
    if generation < refused.generation:
        return NotAccepted(
            "Fenced",
            "StaleGeneration",
            f"generation {generation} is older than the refused one, {refused.generation}",
            generation=generation,
        )
    return reverted(refused) if refused.digest in ("", digest) else _reused(generation)


def _reused(generation: int) -> NotAccepted:
    return NotAccepted(
        "Rejected",
        "GenerationReused",
        f"generation {generation} was accepted with other content: write the next generation",
        (FieldError("generation", "GenerationReused"),),
        generation,
    )


def _reverting_loses(manifest: WireManifest, device: DeviceView) -> NotAccepted | None:
    """Reject a change that could be taken back, and would delete data that nothing brings back."""
    wanted = {score.key for score in manifest.scores}
    lost = sorted(
        key
        for key, on_remove in device.has.items()
        if on_remove == DELETES_DATA and key not in wanted
    )
    if manifest.revert_after is None or not lost:
        return None
    return NotAccepted(
        "Rejected",
        "RevertLosesData",
        f"generation {manifest.generation} would delete the data of {_list(lost)}, which going back "
        "doesn't bring back: take it away in a generation without revert_after",
        (FieldError("revert_after", "RevertLosesData"),),
        manifest.generation,
    )


def _forbidden(manifest: WireManifest, device: DeviceView) -> Iterable[tuple[FieldError, str]]:
    """List what this device's configuration forbids, and what another deployment owns, each with
    what a person wants to know besides.
    """
    occupied: set[str] = set()
    ours = manifest.deployment
    for index, score in enumerate(manifest.scores):
        place = f"scores[{index}]"
        kind = device.kinds.get(score.kind)
        if kind is None:
            yield FieldError(f"{place}.kind", "KindNotAllowed"), ""
            continue
        owner = device.taken.get(score.key, ours)
        if owner != ours:
            yield FieldError(f"{place}.name", "OwnedByAnotherDeployment"), _whose(owner)
            continue
        for error in kind.admit(score) if index not in device.admitted else ():
            at = f"{place}.{error.field}" if error.field else place
            yield FieldError(at, error.code), advice_of(error)
        for claim in sorted(kind.claims(score)):
            owner = device.taken.get(claim, ours)
            if owner != ours:
                yield (
                    FieldError(f"{place}.{_field_of(claim)}", "OwnedByAnotherDeployment"),
                    _whose(owner),
                )
            elif claim in occupied:
                yield FieldError(f"{place}.{_field_of(claim)}", "DuplicateClaim"), ""
            occupied.add(claim)


def _whose(owner: str) -> str:
    return f"it belongs to the deployment {owner}"


def _field_of(claim: str) -> str:
    """The field that a claim comes from."""
    return {"path": "path", "port": "ports"}.get(claim.partition(":")[0], "name")


def _prune_guard(manifest: WireManifest, device: DeviceView) -> NotAccepted | None:
    """Held where more than half (and more than one) of what the deployment owns would go, and
    nobody said so.
    """
    if manifest.removed:
        return None
    wanted = {score.key for score in manifest.scores}
    going = sum(
        1 for key, on_remove in device.has.items() if key not in wanted and on_remove != "orphan"
    )
    if going <= 1 or going * 2 <= len(device.has) or going <= (manifest.allow_prune or 0):
        return None
    return NotAccepted(
        "Held",
        "PruneGuard",
        f"generation {manifest.generation} would remove {going} of {len(device.has)} resources: "
        f"if that is meant, write it again with allow_prune: {going}",
        (FieldError("allow_prune", "PruneGuard"),),
        manifest.generation,
    )


def _told(error: FieldError, note: str = "") -> str:
    """An error for people, with a note."""
    return f"{error.field or 'manifest'}: {error.code}{f' ({note})' if note else ''}"


def _list(told: Sequence[str]) -> str:
    return ", ".join(told[:5]) + (f" and {len(told) - 5} more" if len(told) > 5 else "")
