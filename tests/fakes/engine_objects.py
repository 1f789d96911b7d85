"""Volumes and networks of a container engine in memory, as podman behaves where the kinds lean on it.

`used` are the names that a container has; `calls` lists every change that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from harmony_agent.topology.containers import EngineRefused
from harmony_agent.topology.networks import NetworkSpec, NetworkState
from harmony_agent.topology.volumes import VolumeState

CREATED = datetime(2026, 11, 29, 17, tzinfo=UTC)


class _Objects:
    """What both have."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.calls: list[str] = []
        self.closed = False
        self._refusals: dict[str, EngineRefused] = {}

    def refuse(self, operation: str, text: str = "refused", status: int = 500) -> None:
        """The next call of `operation` is answered with an error."""
        self._refusals[operation] = EngineRefused(status, text)

    async def version(self) -> str:
        return "5.4.2"

    async def close(self) -> None:
        self.closed = True

    def _ask(self, operation: str, name: str = "") -> None:
        if name:
            self.calls.append(f"{operation} {name}")
        if operation in self._refusals:
            raise self._refusals.pop(operation)

    def _in_use(self, name: str) -> None:
        if name in self.used:
            raise EngineRefused(409, f"{name} is being used by the following container(s): web")


class FakeVolumes(_Objects):
    """Implements `topology.volumes.Volumes`."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, VolumeState] = {}

    async def list(self) -> Sequence[VolumeState]:
        self._ask("list")
        return list(self.made.values())

    async def create(self, name: str, driver: str, labels: Mapping[str, str]) -> None:
        self._ask("create", name)
        if driver not in ("local", "image"):
            raise EngineRefused(500, f"no volume plugin with name {driver} available")
        if name in self.made:
            raise EngineRefused(500, f"volume with name {name} already exists")
        self.made[name] = VolumeState(name, driver, dict(labels), CREATED)

    async def remove(self, name: str) -> None:
        self._ask("remove", name)
        self._in_use(name)
        self.made.pop(name, None)


class FakeNetworks(_Objects):
    """Implements `topology.networks.Networks`."""

    def __init__(self) -> None:
        super().__init__()
        self.made: dict[str, NetworkState] = {}

    async def list(self) -> Sequence[NetworkState]:
        self._ask("list")
        return list(self.made.values())

    async def create(self, spec: NetworkSpec) -> None:
        self._ask("create", spec.name)
        if spec.name in self.made:
            raise EngineRefused(409, f"network name {spec.name} already used")
        subnet = spec.subnet or "10.89.0.0/24"
        pair = (subnet, spec.gateway or subnet.replace("0/24", "1"))
        self.made[spec.name] = NetworkState(
            spec.name, "1", spec.driver, (pair,), spec.internal, dict(spec.labels), spec.dns
        )

    async def remove(self, name: str) -> None:
        self._ask("remove", name)
        self._in_use(name)
        self.made.pop(name, None)
