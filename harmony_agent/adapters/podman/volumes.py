"""`topology.volumes.Volumes` over the API of podman's service (4.3 to 5.4), on its socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from harmony_agent.adapters.podman.decode import moment
from harmony_agent.adapters.podman.objects import EngineObjects
from harmony_agent.topology.volumes import VolumeState


class PodmanVolumes:
    """Volumes of the podman service that listens on the socket `path`."""

    def __init__(self, path: str) -> None:
        self._objects = EngineObjects(path, "volumes")

    async def version(self) -> str:
        """Implement `Volumes.version`."""
        return await self._objects.version()

    async def list(self) -> Sequence[VolumeState]:
        """Implement `Volumes.list`."""
        return [
            VolumeState(
                one["Name"],
                one.get("Driver") or "",
                one.get("Labels") or {},
                moment(one.get("CreatedAt")),
            )
            for one in await self._objects.list()
        ]

    async def create(self, name: str, driver: str, labels: Mapping[str, str]) -> None:
        """Implement `Volumes.create`."""
        await self._objects.create({"Name": name, "Driver": driver, "Labels": dict(labels)})

    async def remove(self, name: str) -> None:
        """Implement `Volumes.remove`."""
        await self._objects.remove(name)

    async def close(self) -> None:
        """Let the last connections close. None is held open between calls."""
        await asyncio.sleep(0)
