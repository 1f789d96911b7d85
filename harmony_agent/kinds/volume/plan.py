"""Volume: what to do next, from what is wanted, what the ledger says and what was observed. Pure.

Nothing of a volume can be changed without its data. So what differs is told and left alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.volume.actions import Create, RemoveData, VolumeAction
from harmony_agent.kinds.volume.facts import read
from harmony_agent.topology.volumes import VolumeState
from scores.container_values import LABEL_PREFIX
from scores.volume import Volume

VolumePlan = Plan[VolumeAction]
RESOURCE: Final = f"{LABEL_PREFIX}resource"
DEVICE: Final = f"{LABEL_PREFIX}device"
DELETES_DATA: Final = "delete-data"


def plan(
    name: str,
    desired: Desired[Volume] | None,
    record: OwnershipRecord | None,
    observed: VolumeState | None,
    device: str,
) -> VolumePlan:
    """Plan the next actions."""
    if desired is None:
        return _removal(name, record, observed, device)
    if observed is None:
        return Act((Create(name=name, reason="there is no such volume"),), ("name",))
    differing = differences(desired.spec, observed)
    if not differing:
        return Converged()
    if record is None:
        text = (
            f"a volume {name} that isn't ours is there already, with another "
            f"{' and other '.join(differing)}: rename it, or ask for what is there"
        )
        return Wait("OwnershipConflict", text, "Blocked", 10.0)
    text = (
        f"cannot change {' and '.join(differing)} of the volume {name} without its data: take the "
        "change back, or give the new volume another name"
    )
    return Wait("VolumeDiffers", text, "Blocked", 60.0)


def differences(spec: Volume, seen: VolumeState) -> tuple[str, ...]:
    """The Score's fields that are otherwise on the device."""
    found = ["driver"] if spec.driver != seen.driver else []
    return (*found, "labels") if dict(spec.labels) != own(seen.labels) else tuple(found)


def own(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels without the agent's."""
    return {key: value for key, value in labels.items() if not key.startswith(LABEL_PREFIX)}


def _removal(
    name: str, record: OwnershipRecord | None, seen: VolumeState | None, device: str
) -> VolumePlan:
    """Leave it with its data, unless the Score said otherwise of a volume that was made for it."""
    if seen is None or record is None or record.on_remove != DELETES_DATA:
        return Converged()
    marks = {DEVICE: device, RESOURCE: f"Volume/{name}"}
    if not read(record).made or not marks.items() <= seen.labels.items():
        return Converged()
    return Act((RemoveData(name=name, reason="no longer wanted, nor its data"),))
