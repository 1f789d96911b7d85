"""Network: one list call shows all that there is. Changes nothing."""

from __future__ import annotations

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.networks import Networks, NetworkState
from scores.network import Network


class Observer:
    """Looks at one device's networks."""

    def __init__(self, networks: Networks, view: KindView[Network]) -> None:
        self._networks, self._view = networks, view

    async def relist(self) -> dict[str, NetworkState]:
        """All that is wanted or owned and exists."""
        names = set(self._view.names())
        return await self._listed(names) if names else {}

    async def one(self, name: str) -> NetworkState | None:
        """Observe `name` now. None if there is nothing."""
        return (await self._listed({name})).get(name)

    async def _listed(self, names: set[str]) -> dict[str, NetworkState]:
        try:
            return {one.name: one for one in await self._networks.list() if one.name in names}
        except EngineRefused as refusal:
            text = f"cannot list networks (status {refusal.status}): podman's own log says why"
            raise Transient("InspectFailed", text, phase="Unknown") from None
