"""Package: the reconciler that the engine drives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.package.actions import PackageAction
from harmony_agent.kinds.package.apply import Applier
from harmony_agent.kinds.package.facts import read, write
from harmony_agent.kinds.package.observe import Observer
from harmony_agent.kinds.package.plan import PackagePlan, plan
from harmony_agent.topology.packages import Packages, PackageState
from scores.manifest import FieldError
from scores.package import Package
from scores.status import PackageDetail


class PackageReconciler:
    """Packages of one device."""

    kind = "Package"
    spec_type = Package

    def __init__(self, packages: Packages, store: KindView[Package]) -> None:
        self._observer = Observer(packages, store)
        self._applier = Applier()

    def admit(self, spec: Package) -> Iterable[FieldError]:
        """Nothing: a package may be named by anybody, for nobody installs it."""
        del spec
        return ()

    def claims(self, spec: Package) -> frozenset[str]:
        """Nothing: several resources may need the same package."""
        del spec
        return frozenset()

    async def relist(self) -> Mapping[str, PackageState]:
        """All that is wanted and known."""
        return await self._observer.relist()

    async def observe(self, name: str) -> PackageState | None:
        """One, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[Package] | None,
        record: OwnershipRecord | None,
        observed: PackageState | None,
    ) -> PackagePlan:
        """Plan the next look."""
        del name, record
        return plan(desired, observed)

    async def apply(self, action: PackageAction) -> None:
        """Nothing: no plan has an action."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[Package],
        record: OwnershipRecord | None,
        observed: PackageState | None,
    ) -> Facts:
        """Nothing is worth remembering."""
        del desired, observed
        return write(read(record))

    def detail(
        self, record: OwnershipRecord | None, observed: PackageState | None
    ) -> PackageDetail:
        """The typed status."""
        del record
        if observed is None:
            return PackageDetail(state="Absent")
        return PackageDetail(
            state="Installed" if observed.usable else "Broken", version=observed.version
        )
