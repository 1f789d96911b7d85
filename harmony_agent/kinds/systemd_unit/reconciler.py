"""The Reconciler of SystemdUnit: admits, observes, plans and takes steps. Decides nothing that
`plan` could decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from harmony_agent.core.actions import Plan, Wait
from harmony_agent.core.reconciler import KindView, LogLine
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.kinds.systemd_unit import boot_target
from harmony_agent.kinds.systemd_unit.actions import UnitAction
from harmony_agent.kinds.systemd_unit.apply import Applier
from harmony_agent.kinds.systemd_unit.facts import at_claim, wanted_files, write
from harmony_agent.kinds.systemd_unit.last_run import since
from harmony_agent.kinds.systemd_unit.observe import Observer
from harmony_agent.kinds.systemd_unit.plan import plan
from harmony_agent.kinds.systemd_unit.policy import UnitPolicy, own
from harmony_agent.kinds.systemd_unit.removal import removal
from harmony_agent.topology.units import RUNNING, Unit, Units
from scores.manifest import FieldError
from scores.status import UnitDetail
from scores.systemd_unit import SystemdUnit


class UnitReconciler:
    """Keeps units as their Scores say. `patterns` are globs of the unit names that it may touch;
    `for_user` is whether a user's manager keeps them.
    """

    kind = "SystemdUnit"
    spec_type = SystemdUnit

    def __init__(
        self,
        units: Units,
        store: KindView[SystemdUnit],
        patterns: Sequence[str] = ("*",),
        *,
        for_user: bool = True,
    ) -> None:
        self._units = units
        self._policy = UnitPolicy(tuple(patterns), for_user)
        self._directory = units.directory
        self._boot_id = units.journal_cursor().partition(":")[0]
        self._observer, self._applier = Observer(units, store), Applier(units, store)

    def admit(self, spec: SystemdUnit) -> Iterable[FieldError]:
        """List what the configuration forbids."""
        return self._policy.violations(spec)

    def claims(self, spec: SystemdUnit) -> frozenset[str]:
        """The unit, and the path of every file of it that is to be ours."""
        places = {*wanted_files(spec), *((spec.name,) if spec.masked else ())}
        return frozenset(
            {f"unit:{spec.name}", *(f"path:{self._directory}/{place}" for place in places)}
        )

    async def relist(self) -> Mapping[str, Unit]:
        """All units that are wanted or owned and exist."""
        return await self._observer.relist()

    async def observe(self, name: str) -> Unit | None:
        """One unit, fresh."""
        return await self._observer.one(name)

    def plan(
        self,
        name: str,
        desired: Desired[SystemdUnit] | None,
        record: OwnershipRecord | None,
        observed: Unit | None,
    ) -> Plan[UnitAction]:
        """The next steps; none where the manager takes the name for that of a unit which may not be
        touched.
        """
        stranger = (
            ""
            if desired is not None and desired.spec.content is not None
            else self._policy.stranger(observed)
        )
        if stranger:
            text = f"{name} is another name of {stranger}, which may not be touched here: take the link away"
            reason = "UnitForbidden" if own(stranger) else "UnitNotAllowed"
            return Wait(reason, text, phase="Blocked", seconds=30.0)
        if desired is None:
            return removal(record, observed, name, self._directory, self._boot_id)
        steps = plan(desired, record, observed, self._directory, self._boot_id)
        return boot_target.told(desired.spec, steps) if self._policy.for_user else steps

    def facts(
        self,
        desired: Desired[SystemdUnit],
        record: OwnershipRecord | None,
        observed: Unit | None,
    ) -> Facts:
        """Collect the previous state of the unit, and the spec of its last start."""
        return write(at_claim(record, desired, observed, self._directory, self._boot_id))

    async def apply(self, action: UnitAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def detail(self, record: OwnershipRecord | None, observed: Unit | None) -> UnitDetail | None:
        """The status: active is ready, until a probe says otherwise."""
        unit = observed or Unit("")
        return UnitDetail(
            load_state=unit.load_state or "template",
            active_state=unit.active_state,
            sub_state=unit.sub_state,
            unit_file_state=unit.unit_file_state,
            main_pid=unit.main_pid,
            restarts=unit.restarts,
            since=since(unit),
            condition=unit.condition,
            ready=unit.active_state in RUNNING,
        )

    def batch_begin(self, names: Collection[str]) -> None:
        """One reload shall serve all of these."""
        self._units.batch_begin(names)

    def batch_end(self, name: str) -> None:
        """`name` writes no more files for now."""
        self._units.batch_end(name)

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Hear of changes of the units that were listed or observed."""
        await self._units.watch(changed)

    def instance(self, observed: Unit | None) -> str:
        """The id of the run that is active."""
        return observed.run if observed is not None and observed.active_state in RUNNING else ""

    async def restart(self, name: str) -> None:
        """Restart it, for its liveness probe failed."""
        await self._applier.revive(name)

    async def release(self, name: str) -> None:
        """Leave the object as it is, and drop its backup."""
        await self._units.drop_backups(name)

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines of its journal."""
        return await self._units.logs(name, lines, seconds)

    async def close(self) -> None:
        """Let go of the bus."""
        await self._units.close()
