"""`topology.networks.Networks` over the API of podman's service (4.3 to 5.4), on its socket."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from harmony_agent.adapters.podman.objects import EngineObjects
from harmony_agent.topology.networks import NetworkSpec, NetworkState


class PodmanNetworks:
    """Networks of the podman service that listens on the socket `path`."""

    def __init__(self, path: str) -> None:
        self._objects = EngineObjects(path, "networks")

    async def version(self) -> str:
        """Implement `Networks.version`."""
        return await self._objects.version()

    async def list(self) -> Sequence[NetworkState]:
        """Implement `Networks.list`."""
        return [_state(one) for one in await self._objects.list()]

    async def create(self, spec: NetworkSpec) -> None:
        """Implement `Networks.create`."""
        body: dict[str, Any] = {"name": spec.name, "driver": spec.driver, "internal": spec.internal}
        body |= {"labels": dict(spec.labels), "dns_enabled": spec.dns}
        if spec.subnet:
            gateway = {"gateway": spec.gateway} if spec.gateway else {}
            body["subnets"] = [{"subnet": spec.subnet, **gateway}]
            body["ipv6_enabled"] = ":" in spec.subnet
        await self._objects.create(body)

    async def remove(self, name: str) -> None:
        """Implement `Networks.remove`."""
        await self._objects.remove(name)

    async def close(self) -> None:
        """Let the last connections close. None is held open between calls."""
        await asyncio.sleep(0)


def _state(one: dict[str, Any]) -> NetworkState:
    subnets = one.get("subnets") or []
    return NetworkState(
        name=one["name"],
        id=one.get("id") or "",
        driver=one.get("driver") or "",
        subnets=tuple((each["subnet"], each.get("gateway") or "") for each in subnets),
        internal=bool(one.get("internal")),
        dns=bool(one.get("dns_enabled")),
        labels=one.get("labels") or {},
    )
