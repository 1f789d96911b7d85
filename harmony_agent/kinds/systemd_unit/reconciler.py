"""The Reconciler of SystemdUnit: admits, observes, plans and takes steps. Decides nothing that
`plan` could decide.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final, assert_never

from harmony_agent.core.actions import Plan, Wait
from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts
from harmony_agent.kinds.systemd_unit import actions as steps
from harmony_agent.kinds.systemd_unit.actions import UnitAction
from harmony_agent.kinds.systemd_unit.facts import UnitFacts, at_claim, read, wanted_files
from harmony_agent.kinds.systemd_unit.plan import plan
from harmony_agent.kinds.systemd_unit.policy import allowed, own, violations
from harmony_agent.kinds.systemd_unit.removal import removal
from harmony_agent.topology.units import RUNNING, Unit, Units
from scores.manifest import FieldError
from scores.names import format_time
from scores.status import UnitDetail
from scores.systemd_unit import SystemdUnit

HARMLESS: Final = frozenset({"", "done", "skipped", "failed", "assert"})
"""Job results that need no word here: what came of them is seen in the unit itself."""


class UnitReconciler:
    """Keeps units as their Scores say. `patterns` are globs of the unit names that it may touch."""

    kind = "SystemdUnit"
    spec_type = SystemdUnit

    def __init__(self, units: Units, store: KindView, patterns: Sequence[str] = ("*",)) -> None:
        self._units = units
        self._store = store
        self._patterns = tuple(patterns)

    def admit(self, spec: SystemdUnit) -> Iterable[FieldError]:
        """Units outside the allowed patterns, our own units, and an empty unit file (which would be
        a mask).
        """
        yield from violations(spec, self._patterns)
        if spec.content == "":
            yield FieldError("content", "UnitFileEmpty")

    def claims(self, spec: SystemdUnit) -> frozenset[str]:
        """The unit, and the path of every file of it that is to be ours."""
        places = {*wanted_files(spec), *((spec.name,) if spec.masked else ())}
        return frozenset(
            {f"unit:{spec.name}", *(f"path:{self._units.directory}/{place}" for place in places)}
        )

    async def relist(self) -> Mapping[str, Unit]:
        """All units that are wanted or owned and exist."""
        return await self._units.list_units(self._store.names())

    async def observe(self, name: str) -> Unit | None:
        """One unit, fresh. The manager forgets a one-shot that ended while nobody looked: then the
        log is asked.
        """
        unit = await self._units.look(name)
        if (
            unit is None
            or not unit.oneshot
            or unit.active_state != "inactive"
            or unit.invocation
            or unit.job
        ):
            return unit
        facts = read(self._store.record(name))
        if facts.completed or not facts.moment:
            return unit
        return replace(unit, finished=await self._units.finished(name, facts.moment))

    def plan(
        self, name: str, desired: Desired[SystemdUnit] | None, observed: Unit | None
    ) -> Plan[UnitAction]:
        """The next steps; none where the manager takes the name for that of a unit which may not be
        touched.
        """
        record = self._store.record(name)
        stranger = (
            ""
            if desired is not None and desired.spec.content is not None
            else self._stranger(observed)
        )
        if stranger:
            text = f"{name} is another name of {stranger}, which may not be touched here: take the link away"
            reason = "UnitForbidden" if own(stranger) else "UnitNotAllowed"
            return Wait(reason, text, phase="Blocked", seconds=30.0)
        if desired is None:
            return removal(record, observed, name, self._units.directory, self._boot())
        return plan(desired, record, observed, self._units.directory)

    def _stranger(self, observed: Unit | None) -> str:
        """The unit that is really meant where that is one which may not be touched."""
        real = observed.id if observed is not None and observed.id != observed.name else ""
        return real if real and (own(real) or not allowed(real, self._patterns)) else ""

    def facts(self, name: str, desired: Desired[SystemdUnit], observed: Unit | None) -> Facts:
        """Collect the previous state of the unit, and the spec of its last start."""
        record = self._store.record(name)
        return at_claim(record, desired, observed, self._units.directory, self._boot()).json()

    def _boot(self) -> str:
        return self._units.journal_cursor().partition(":")[0]

    async def apply(self, action: UnitAction) -> None:  # noqa: PLR0912 - one line a step
        """Take one step."""
        name, units = action.name, self._units
        match action:
            case steps.Write():
                await units.write(name, action.place, action.content, action.keep)
            case steps.Remove():
                await units.remove(name, action.place, action.keep)
            case steps.Restore():
                await units.restore(name, action.place, action.former)
            case steps.Enable():
                await units.enable(name)
            case steps.Disable():
                await units.disable(name, runtime=action.runtime)
            case steps.Relink():
                await units.relink(name, action.links)
            case steps.Keep():
                await units.keep(name, action.place, action.keep)
            case steps.Mask():
                await units.mask(name)
            case steps.Unmask():
                await self._unmask(name, runtime=action.runtime)
            case steps.Reload():
                await units.reload(name)
            case steps.Note():
                await self._store.note(name, action.note.json())
            case steps.Start() | steps.Stop() | steps.Restart():
                await self._run(action)
            case steps.ReloadUnit():
                await self._reload_unit(action)
            case steps.ResetFailed():
                await units.reset_failed(name)
            case steps.Release():
                await self._store.note(name, action.note.json())
                await units.drop_backups(name)
            case _:
                assert_never(action)

    async def _unmask(self, name: str, *, runtime: bool) -> None:
        if not await self._units.unmask(name, runtime=runtime):
            text = f"cannot unmask {name}: it is masked elsewhere, as by the administrator for all users"
            raise Transient("UnitMasked", text, phase="Blocked", delay=60.0)

    async def _run(self, action: steps.Start | steps.Stop | steps.Restart) -> None:
        name = action.name
        if isinstance(action, steps.Stop):
            result = await self._units.stop(name)
        elif isinstance(action, steps.Restart):
            await self._note_run(name, action.note)
            result = await self._units.restart(name)
        else:
            if action.note is not None:
                await self._note_run(name, action.note)
            result = await self._units.start(name)
        if result == "dependency":
            raise Transient(
                "DependencyFailed", f"cannot start {name}: a unit that it requires doesn't start"
            )
        if result not in HARMLESS:
            raise Transient(
                "JobFailed", f"cannot change the state of {name}: systemd ended the job as {result}"
            )

    async def _note_run(self, name: str, note: UnitFacts) -> None:
        await self._store.note(name, replace(note, moment=self._units.journal_cursor()).json())

    async def _reload_unit(self, action: steps.ReloadUnit) -> None:
        name = action.name
        await self._store.note(name, action.note.json())
        result = await self._units.reload_unit(name)
        if result not in ("", "done"):
            # Not done after all: what was noted says otherwise.
            before = read(self._store.record(name)).json()
            await self._store.note(name, {**before, "reload": "", "changed": 0})
            raise Transient(
                "UnitReloadFailed", f"cannot reload {name}: systemd ended the job as {result}"
            )

    def detail(self, name: str, observed: Unit | None) -> UnitDetail | None:
        """The status: active is ready, until a probe says otherwise."""
        unit = observed or Unit(name)
        since = format_time(datetime.fromtimestamp(unit.since / 1e6, UTC)) if unit.since else None
        return UnitDetail(
            load_state=unit.load_state or "template",
            active_state=unit.active_state,
            sub_state=unit.sub_state,
            unit_file_state=unit.unit_file_state,
            main_pid=unit.main_pid,
            restarts=unit.restarts,
            since=since,
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
        result = await self._units.restart(name)
        if result not in HARMLESS:
            raise Transient(
                "JobFailed", f"cannot restart {name}: systemd ended the job as {result}"
            )

    async def release(self, name: str) -> None:
        """Leave the object as it is, and drop its backup."""
        await self._units.drop_backups(name)

    async def logs(self, name: str, lines: int) -> list[str]:
        """The last lines of its journal."""
        return await self._units.logs(name, lines)

    async def close(self) -> None:
        """Let go of the bus."""
        await self._units.close()
