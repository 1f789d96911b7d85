"""Packages in memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harmony_agent.core.errors import Transient
from harmony_agent.topology.packages import PackageState


class FakePackages:
    """`known` is what is installed; `broken` has every look fail."""

    def __init__(self) -> None:
        self.known: dict[str, PackageState] = {}
        self.broken = False
        self.looks = 0

    async def look(self, names: Collection[str]) -> Mapping[str, PackageState]:
        """Implement `Packages.look`."""
        self.looks += 1
        if self.broken:
            raise Transient("PackagesUnreadable", "cannot read", phase="Unknown")
        return {name: self.known[name] for name in names if name in self.known}
