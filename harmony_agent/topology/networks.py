"""Networks: what containers are connected by, as the device's container engine keeps them. No
library, no I/O.

The methods raise `containers.EngineRefused` where the engine answered with an error, and
`core.errors.Transient` where it did not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class NetworkState:
    """A network as the engine shows it. `subnets` are pairs of a subnet and its gateway ("" where
    there is none), in the engine's spelling.
    """

    name: str
    id: str = ""
    driver: str = "bridge"
    subnets: tuple[tuple[str, str], ...] = ()
    internal: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    dns: bool = True


@frozen()
class NetworkSpec:
    """What a network is made of. "" is the engine's choice."""

    name: str
    driver: str
    subnet: str
    gateway: str
    internal: bool
    dns: bool
    labels: Mapping[str, str]


class Networks(Protocol):
    """The networks of a container engine, by their full names."""

    async def version(self) -> str:
        """The engine's version, as ``4.3.1``."""
        ...

    async def list(self) -> Sequence[NetworkState]:
        """Every network. One call."""
        ...

    async def create(self, spec: NetworkSpec) -> None:
        """Create one. Refused where the name or the subnet is taken."""
        ...

    async def remove(self, name: str) -> None:
        """Remove it. Refused while a container is in it; nothing happens when it isn't there."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
