"""Network: takes the steps that the plan asks for, each safe to repeat."""

from __future__ import annotations

from typing import assert_never

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.network.actions import Create, NetworkAction, Remove
from harmony_agent.kinds.network.plan import DEVICE, RESOURCE
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.networks import Networks, NetworkSpec
from scores.network import Network


class Applier:
    """Changes one device's networks."""

    def __init__(self, networks: Networks, view: KindView[Network], device: str) -> None:
        self._networks, self._view, self._device = networks, view, device

    async def apply(self, action: NetworkAction) -> None:
        """Take one step. What podman refuses becomes Transient, with its words."""
        match action:
            case Create(name=name):
                await self._create(name)
            case Remove(name=name):
                await self._remove(name)
            case _:
                assert_never(action)

    async def _create(self, name: str) -> None:
        desired = self._view.desired(name)
        if desired is None:
            return
        spec = desired.spec
        labels = {**spec.labels, DEVICE: self._device, RESOURCE: f"Network/{name}"}
        dns = spec.dns and spec.driver == "bridge"
        wanted = NetworkSpec(
            name, spec.driver, spec.subnet or "", spec.gateway or "", spec.internal, dns, labels
        )
        try:
            await self._networks.create(wanted)
        except EngineRefused as refusal:
            text = f"cannot create the network {name}: {refusal.words()}"
            raise Transient("CreateFailed", text) from None

    async def _remove(self, name: str) -> None:
        try:
            await self._networks.remove(name)
        except EngineRefused as refusal:
            if not refusal.in_use:
                text = f"cannot remove the network {name}: {refusal.words()}"
                raise Transient("RemoveFailed", text) from None
            text = (
                f"cannot remove the network {name} while a container is in it: remove that, or give "
                "the new network another name"
            )
            raise Transient("NetworkInUse", text, phase="Blocked", delay=5.0) from None
