"""Package: one look shows all that are needed. Changes nothing."""

from __future__ import annotations

from harmony_agent.core.reconciler import KindView
from harmony_agent.topology.packages import Packages, PackageState
from scores.package import Package


class Observer:
    """Looks at one device's packages."""

    def __init__(self, packages: Packages, view: KindView[Package]) -> None:
        self._packages, self._view = packages, view

    async def relist(self) -> dict[str, PackageState]:
        """All that is wanted and known, by the names of their resources."""
        wanted = {name: one.spec.wanted for name, one in self._view.wanted().items()}
        if not wanted:
            return {}
        known = await self._packages.look(set(wanted.values()))
        return {name: known[package] for name, package in wanted.items() if package in known}

    async def one(self, name: str) -> PackageState | None:
        """Observe `name` now: as cheap as all of them. None if there is nothing."""
        return (await self.relist()).get(name)
