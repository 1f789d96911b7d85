"""Volumes: named places for data that the device's container engine keeps. No library, no I/O.

The methods raise `containers.EngineRefused` where the engine answered with an error, and
`core.errors.Transient` where it did not answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class VolumeState:
    """A volume as the engine shows it; its data is never looked at."""

    name: str
    driver: str = "local"
    labels: Mapping[str, str] = field(default_factory=dict)
    created: datetime | None = None


class Volumes(Protocol):
    """The volumes of a container engine, by their full names."""

    async def version(self) -> str:
        """The engine's version, as ``4.3.1``."""
        ...

    async def list(self) -> Sequence[VolumeState]:
        """Every volume. One call."""
        ...

    async def create(self, name: str, driver: str, labels: Mapping[str, str]) -> None:
        """Create one. Refused where the name is taken."""
        ...

    async def remove(self, name: str) -> None:
        """Remove it with its data. Refused while a container has it; nothing happens when it isn't
        there.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...
