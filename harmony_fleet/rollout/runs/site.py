"""Reading a run's devices from the buckets, in a few reads however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import (
    Actual,
    Deployment,
    Desired,
    Device,
    list_deployments,
    list_devices,
    read_device,
)
from harmony_fleet.rollout.runs.advance import Evidence
from scores.keys import HEARTBEAT, DeploymentKey, heartbeat_key
from scores.task_run import TaskRun

_FEW: Final = 32
"""Devices that are read one by one; of more, the bucket is read whole."""


@dataclass(frozen=True, slots=True)
class Site:
    """Each of a run's devices, by name: the run's deployment there, and what is known by that
    `now`.
    """

    deployments: Mapping[str, Deployment]
    known: Mapping[str, Evidence]
    now: datetime

    async def devices(self, store: Store, names: Collection[str]) -> dict[str, Device]:
        """Read what these devices tell of themselves."""
        if len(names) <= _FEW:
            found = await gather_bounded(lambda name: read_device(store, name), names)
        else:
            found = await list_devices(store)
        told = {device.name: device for device in found}
        return {name: told.get(name) or Device(name, None) for name in names}


async def look(store: Store, run: TaskRun) -> Site:
    """Read what a run is decided by."""
    names = [target.device for target in run.targets]
    beats = [heartbeat_key(name) for name in names] if len(names) <= _FEW else ["heartbeat.*"]
    listed, heard, now = await asyncio.gather(
        list_deployments(store, None, run.deployment), store.entries(HEARTBEAT, beats), store.now()
    )
    there = {found.key.device: found for found in listed}
    deployments = {name: there.get(name) or _absent(name, run.deployment) for name in names}
    known = {name: _evidence(deployments[name], heard.get(heartbeat_key(name))) for name in names}
    return Site(deployments, known, now)


def _absent(device: str, deployment: str) -> Deployment:
    return Deployment(DeploymentKey(device, deployment), Desired(), Actual())


def _evidence(found: Deployment, beat: Entry | None) -> Evidence:
    status, standing = found.actual.status, found.desired.manifest
    let_go = status.phase == "Removed" if status is not None else standing is None
    nothing_asked = not found.desired.problem and (standing is None or standing.removed)
    return Evidence(
        status,
        found.actual.created,
        beat.created if beat is not None else None,
        withdrawn=nothing_asked and let_go,
    )
