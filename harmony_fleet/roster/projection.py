"""From the roster to manifests: what is to be desired of each device. Pure; the same roster gives
the same bytes.

`stopped` keeps files and stops all that runs. A device that isn't enabled is stopped too,
whatever its `desired_state`, and gets nothing new: its projections are `only_there`, for what it
has already.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.faults import refusal
from harmony_fleet.manifests.variables import fill, uses
from harmony_fleet.roster.model import Roster, RosterDeployment, RosterDevice
from harmony_fleet.roster.sources import RawScores
from scores.keys import DeploymentKey
from scores.manifest import FieldError, InvalidManifest, Manifest, validate
from scores.system_upgrade import SystemUpgrade


@dataclass(frozen=True, slots=True)
class Projection:
    """Desired manifest at one key.

    `only_there`: only if something is desired or enforced there already.
    """

    manifest: Manifest
    only_there: bool = False


@dataclass(slots=True)
class _Made:
    """Manifests that are the same for every device without variables."""

    by_state: dict[tuple[str, bool], Manifest] = field(default_factory=dict)


def project(roster: Roster, sources: Mapping[str, RawScores]) -> dict[DeploymentKey, Projection]:
    """Every projection, by key. `sources` are the raw Scores by deployment; one that isn't there is
    left out. Raises InvalidInput.
    """
    made = _Made()
    found: dict[DeploymentKey, Projection] = {}
    for deployment in roster.deployments:
        raw = sources.get(deployment.name)
        if raw is None:
            continue
        same = not uses(raw)
        for device in roster.devices:
            if deployment.select.picks(device):
                manifest = (
                    _shared(made, deployment, device, raw)
                    if same and not device.overrides.get(deployment.name)
                    else _manifest(deployment, device, raw)
                )
                found[DeploymentKey(device.name, deployment.name)] = Projection(
                    manifest, not device.enabled
                )
    _check_owners(found)
    return found


def _check_owners(found: Mapping[DeploymentKey, Projection]) -> None:
    """A resource of a device belongs to one deployment: what the device would reject is refused
    here.
    """
    owners: dict[tuple[str, str], str] = {}
    for key, projection in found.items():
        for score in projection.manifest.scores:
            owner = owners.setdefault((key.device, score.key), key.deployment)
            if owner != key.deployment:
                raise InvalidInput(
                    "OwnedByAnotherDeployment",
                    f"cannot project {key.device}: {score.key} is in both {owner} and {key.deployment}",
                    "name one of them otherwise, or choose other devices",
                )


def _shared(
    made: _Made, deployment: RosterDeployment, device: RosterDevice, raw: RawScores
) -> Manifest:
    key = (deployment.name, device.runs)
    if key not in made.by_state:
        made.by_state[key] = _manifest(deployment, device, raw)
    return made.by_state[key]


def _manifest(deployment: RosterDeployment, device: RosterDevice, raw: RawScores) -> Manifest:
    where = f"{device.name}/{deployment.name}"
    scores: Any = fill(raw, device.known(), "scores", f"project {where}", partial(_hint, device))
    scores = _overridden(scores, deployment.name, device)
    try:
        manifest = validate(Manifest, {"deployment": deployment.name, "scores": scores})
    except InvalidManifest as error:
        raise refusal(f"cannot project {where}", error, {"scores": scores}) from None
    for at, score in enumerate(manifest.scores):
        if isinstance(score, SystemUpgrade):
            raise InvalidInput(
                "SystemUpgradeInRoster",
                f"cannot project {where}: a SystemUpgrade is for once, and the roster is for good",
                "start one with: harmony upgrade start; recurring ones are schedules",
                [FieldError(f"scores[{at}].kind", "SystemUpgradeInRoster")],
            )
    return manifest if device.runs else stopped(manifest)


def _overridden(scores: list[Any], deployment: str, device: RosterDevice) -> list[Any]:
    """The Scores with what is otherwise on this device. Raises InvalidInput for a resource that
    isn't among them.
    """
    overrides = dict(device.overrides.get(deployment, {}))
    made = []
    for score in scores:
        fields = overrides.pop(f"{score.get('kind')}/{score.get('name')}", {})
        gone = {name for name, value in fields.items() if value is None}
        made.append({name: item for name, item in {**score, **fields}.items() if name not in gone})
    for key in sorted(overrides):
        raise InvalidInput(
            "OverrideUnknown",
            f"cannot project {device.name}/{deployment}: {device.name} overrides {key}, and there is no such resource",
            f"take it away with: harmony fleet device set {device.name} --no-override {deployment}/{key}",
        )
    return made


def _hint(device: RosterDevice, name: str) -> str:
    """The command that gives the device this variable."""
    label = name.removeprefix("labels.")
    how = f"--label {label}=VALUE" if label != name else f"--variable {name}=VALUE"
    return f"set it with: harmony fleet device set {device.name} {how}"


def stopped(manifest: Manifest) -> Manifest:
    """The same with all that runs stopped, and nothing that a boot would start."""
    return manifest.model_copy(update={"scores": [score.stopped() for score in manifest.scores]})
