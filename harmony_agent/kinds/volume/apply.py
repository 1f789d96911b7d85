"""Volume: takes the steps that the plan asks for, each safe to repeat."""

from __future__ import annotations

from typing import assert_never

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.volume.actions import Create, RemoveData, VolumeAction
from harmony_agent.kinds.volume.plan import DEVICE, RESOURCE
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.volumes import Volumes
from scores.volume import Volume


class Applier:
    """Changes one device's volumes."""

    def __init__(self, volumes: Volumes, view: KindView[Volume], device: str) -> None:
        self._volumes, self._view, self._device = volumes, view, device

    async def apply(self, action: VolumeAction) -> None:
        """Take one step. What podman refuses becomes Transient, with its words."""
        match action:
            case Create(name=name):
                await self._create(name)
            case RemoveData(name=name):
                await self._remove(name)
            case _:
                assert_never(action)

    async def _create(self, name: str) -> None:
        desired = self._view.desired(name)
        if desired is None:
            return
        labels = {**desired.spec.labels, DEVICE: self._device, RESOURCE: f"Volume/{name}"}
        try:
            await self._volumes.create(name, desired.spec.driver, labels)
        except EngineRefused as refusal:
            text = f"cannot create the volume {name}: {refusal.words()}"
            raise Transient("CreateFailed", text) from None

    async def _remove(self, name: str) -> None:
        try:
            await self._volumes.remove(name)
        except EngineRefused as refusal:
            if not refusal.in_use:
                text = f"cannot remove the volume {name}: {refusal.words()}"
                raise Transient("RemoveFailed", text) from None
            text = f"cannot remove the volume {name} while a container has it: remove that"
            raise Transient("VolumeInUse", text, phase="Blocked", delay=5.0) from None
