"""Remains of a device that lost its memory, as it tells them, and the decision on them.

The device takes back a resource once it is told its Scores. These are the Scores that it should
have anyway, and those of its older manifests: they stand in the history of ``desired-state``, and
are found by their digests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from harmony_fleet.errors import ExitCode, InvalidInput, Refused
from harmony_fleet.manifests.shared import specs_shared
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, Device, read_deployment, to_desired
from harmony_fleet.rollout.apply import Options, Run, apply
from scores.base import Score
from scores.container import Container
from scores.keys import DESIRED, DeploymentKey
from scores.manifest import Manifest

LOST: Final = "LedgerLost"
_ANY_IMAGE: Final = "localhost/unknown"


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on the remains.

    `removing`: what isn't wanted is taken off; `leave` names what stays as it is.
    """

    removing: bool = False
    leave: Sequence[str] = ()

    async def __call__(self, store: Store, manifest: Manifest, found: Deployment) -> Manifest:
        """`manifest` with the decision for this device. Raises Refused where somebody has to look
        first.
        """
        lost = lost_of(found)
        unwanted = sorted(lost.keys() - specs_shared(manifest).keys() - set(self.leave))
        if unwanted and not self.removing:
            raise Refused(
                "RemainsUnwanted",
                f"cannot take back {found.key}: the manifest doesn't want {', '.join(unwanted)}, so that would go",
                "if that is meant: --remains; else apply a manifest that has it, first",
                alone=True,
            )
        scores = await _formers(store, found.key, lost, manifest)
        unknown = sorted(
            _to_find(lost, manifest) - {score.key for score in scores} - set(self.leave)
        )
        if unknown:
            raise Refused(
                "RemainsUnknown",
                f"cannot tell {found.key.device} what {', '.join(unknown)} was: no manifest that is left has it as it "
                "was",
                "look for it there, by hand; then name it with --leave",
                alone=True,
            )
        kept = [score for score in scores if score.key not in self.leave]
        allowed = max(manifest.allow_prune or 0, len(unwanted))
        return manifest.model_copy(
            update={
                "remains": kept,
                "allow_prune": allowed if unwanted and not manifest.removed else None,
            }
        )


def lost_of(found: Deployment) -> dict[str, str]:
    """Return the resources that the device no longer knows as its own: resource key -> digest of
    its last spec.
    """
    status = found.actual.status
    resources = status.resources if status is not None else {}
    return {key: item.spec_digest for key, item in resources.items() if item.reason == LOST}


def _to_find(lost: Mapping[str, str], manifest: Manifest) -> set[str]:
    """Those that the manifest itself doesn't say all of."""
    wanted = specs_shared(manifest)
    return {key for key, digest in lost.items() if wanted.get(key) != digest}


async def _formers(
    store: Store, key: DeploymentKey, lost: Mapping[str, str], manifest: Manifest
) -> list[Score]:
    """Each Score that is needed, out of the manifests of before.

    A container says by its labels whose it is, so any Score of its name will do.
    """
    needed = _to_find(lost, manifest)
    found: dict[str, Score] = {}
    for entry in await store.history(DESIRED, str(key)) if needed else ():
        before = to_desired(entry).manifest
        for score in (*before.scores, *(before.remains or ())) if before is not None else ():
            exactly = lost.get(score.key) == score.spec_digest()
            if score.key in needed and (
                exactly or (score.kind == "Container" and score.key not in found)
            ):
                found[score.key] = score
    for name in needed - found.keys():
        kind, _, container = name.partition("/")
        if kind == "Container":
            found[name] = Container(name=container, image=_ANY_IMAGE)
    return [found[name] for name in sorted(found)]


async def adopt(
    store: Store, key: DeploymentKey, devices: Sequence[Device], options: Options, run: Run
) -> ExitCode:
    """Write the desired manifest once more, with the decision that the device takes back what it
    had.
    """
    found = await read_deployment(store, key)
    standing = found.desired.manifest
    if standing is None or standing.removed:
        raise InvalidInput(
            "NothingDesired",
            f"cannot take back {key}: nothing is desired there",
            f"apply its manifest first, or take it off: harmony delete {key.deployment} -d {key.device} --remains",
        )
    if not lost_of(found):
        return ExitCode.DONE
    manifest = Manifest(
        deployment=standing.deployment, scores=standing.scores, allow_prune=standing.allow_prune
    )
    noted = options.signing.noted(standing, found.desired.note)
    wanted = replace(options, roster=noted)  # what was the roster's stays so
    return await apply(store, [(manifest, device) for device in devices], wanted, run)
