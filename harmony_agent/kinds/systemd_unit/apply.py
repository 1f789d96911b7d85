"""Takes the steps that a plan asks for, each safe to repeat, and notes each run before it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, assert_never

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.systemd_unit import actions as steps
from harmony_agent.kinds.systemd_unit.actions import UnitAction
from harmony_agent.kinds.systemd_unit.facts import UnitFacts, read, write
from harmony_agent.topology.units import Units
from scores.systemd_unit import SystemdUnit

HARMLESS: Final = frozenset({"", "done", "skipped", "failed", "assert"})
"""Job results that need no word here: what came of them is seen in the unit itself."""


class Applier:
    """Changes one manager's units."""

    def __init__(self, units: Units, view: KindView[SystemdUnit]) -> None:
        self._units, self._view = units, view

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
                await self._view.note(name, write(action.note))
            case steps.Start() | steps.Stop() | steps.Restart():
                await self._run(action)
            case steps.ReloadUnit():
                await self._reload_unit(action)
            case steps.ResetFailed():
                await units.reset_failed(name)
            case steps.Release():
                await self._view.note(name, write(action.note))
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
        await self._view.note(name, write(replace(note, moment=self._units.journal_cursor())))

    async def _reload_unit(self, action: steps.ReloadUnit) -> None:
        name = action.name
        await self._view.note(name, write(action.note))
        result = await self._units.reload_unit(name)
        if result not in ("", "done"):
            # Not done after all: what was noted says otherwise.
            before = read(self._view.record(name))
            await self._view.note(name, write(replace(before, reload="", changed=0)))
            raise Transient(
                "UnitReloadFailed", f"cannot reload {name}: systemd ended the job as {result}"
            )

    async def revive(self, name: str) -> None:
        """Restart it, for its liveness probe failed."""
        result = await self._units.restart(name)
        if result not in HARMLESS:
            raise Transient(
                "JobFailed", f"cannot restart {name}: systemd ended the job as {result}"
            )
