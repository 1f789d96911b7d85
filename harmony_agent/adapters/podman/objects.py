"""Objects of podman besides containers, by one path of its API: list, create, remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harmony_agent.adapters.podman.transport import Link, answered

_SECONDS = 30.0


class EngineObjects:
    """The objects below `kind`, as ``volumes``, of the podman service on the socket `path`."""

    def __init__(self, path: str, kind: str) -> None:
        self._link, self._kind = Link(path), kind

    async def version(self) -> str:
        """The service's version."""
        return str((await self._get("for its version", "/version"))["Version"])

    async def list(self) -> list[dict[str, Any]]:
        """Every one."""
        found: list[dict[str, Any]] | None = await self._get(
            f"to list {self._kind}", f"/{self._kind}/json"
        )
        return found or []

    async def _get(self, what: str, path: str) -> Any:
        async def work() -> Any:
            async with self._link.request("GET", path) as response:
                return await (await answered(response)).json()

        return await self._link.call(what, work)

    async def create(self, body: Mapping[str, Any]) -> None:
        """Create one."""
        await self._change("POST", f"/{self._kind}/create", body)

    async def remove(self, name: str) -> None:
        """Remove the one of this name. Podman takes a name for a part of another one where there is
        none of it, so it is looked for first.
        """
        if any((one.get("Name") or one.get("name")) == name for one in await self.list()):
            await self._change("DELETE", f"/{self._kind}/{name}", missing=True)

    async def _change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        missing: bool = False,
    ) -> None:
        async def work() -> None:
            async with self._link.request(method, path, body=body) as response:
                await answered(response, missing=missing)

        await self._link.call(f"to change {self._kind}", work, _SECONDS, slow=True)
