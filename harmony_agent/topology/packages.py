"""Packages: what the device's package manager has installed. No library, no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class PackageState:
    """A package that is known. `state` is dpkg's word: ``installed``, ``half-configured``, …"""

    version: str
    state: str = "installed"

    @property
    def usable(self) -> bool:
        """Tell if its programs can be used; triggers may still be due."""
        return self.state in ("installed", "triggers-awaited", "triggers-pending")


class Packages(Protocol):
    """The packages of one device. `look` raises Transient if they can't be read now."""

    async def look(self, names: Collection[str]) -> Mapping[str, PackageState]:
        """Find what is known of each of these; one that never was installed isn't in it."""
        ...
