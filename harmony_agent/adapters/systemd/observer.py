"""Observes units, from the manager and the unit directory. Changes nothing.

`look` reads one unit fresh. `list_units` reads only what may have changed. A cached unit holds as
long as its basis is the same: its row in the manager's list, its files, the directories that decide
on enablement, and the connection whose signals tell of changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import anyio

from harmony_agent.adapters.posix.executor import BoundedExecutor
from harmony_agent.adapters.posix.inotify import Watcher
from harmony_agent.adapters.posix.listeners import Listeners
from harmony_agent.adapters.systemd.bus import PROPERTIES, Bus
from harmony_agent.adapters.systemd.diagnosis import Diagnosis
from harmony_agent.adapters.systemd.enablement import Enablement, Fingerprint
from harmony_agent.adapters.systemd.properties import Row, unit_of
from harmony_agent.adapters.systemd.unit_files import OnDisk, UnitFiles
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import Refusal, Unit

SCAN_TIMEOUT: Final = 20.0
_AT_ONCE: Final = 16
_FORGET: Final = 64
"""Each list reads one of so many units anew, whatever the cache says."""
_Under = tuple[Row, OnDisk, Fingerprint, int]
"""Basis of a cached unit: its row, its files, the directories of links, and the connection."""


@dataclass(slots=True)
class _Known:
    """Cached observation of a unit."""

    unit: Unit | None
    under: _Under


class UnitObserver:
    """Observe units. Tells `changed` the name of each unit that may look different."""

    def __init__(
        self,
        bus: Bus,
        files: UnitFiles,
        links: Enablement,
        threads: BoundedExecutor,
        diagnosis: Diagnosis,
    ) -> None:
        self._bus = bus
        self._files = files
        self._links = links
        self._threads = threads
        self._diagnosis = diagnosis
        self._watcher = Watcher()
        self._known: dict[str, _Known] = {}
        self._names: dict[str, set[str]] = {}
        """object path -> the names that it was asked by"""
        self.changed = Listeners[str]()
        bus.unit_changed.add(self._on_unit)
        bus.reloading.add(self._on_reload)

    async def list_units(self, names: Collection[str]) -> Mapping[str, Unit]:
        """Return those of `names` of which anything exists. Reads what may have changed."""
        for name in list(self._known)[: len(self._known) // _FORGET + 1]:
            del self._known[name]
        rows = await self._list_rows(names)
        disk = await self._scan("all units", names)
        followed = [
            f"{self._files.directory}/{place}"
            for name in disk
            for place in (name, *disk[name].files)
        ]
        self._watcher.retain(followed, {})
        links = await self._links.fingerprint()
        self._known = {name: known for name, known in self._known.items() if name in disk}
        self._links.retain(disk.keys())
        self._names = {
            path: some for path, every in self._names.items() if (some := every & disk.keys())
        }
        under = {
            name: (rows.get(name, ()), disk[name], links, self._bus.connections) for name in disk
        }
        # An event meanwhile takes a unit out of the cache. It doesn't take it out of the list.
        found = {name: self._known[name].unit for name in disk if self._holds(name, under[name])}
        found |= await self._read_all([name for name in disk if name not in found], under)
        units = ((name, found.get(name)) for name in names)
        return {name: unit for name, unit in units if unit is not None}

    def _holds(self, name: str, under: _Under) -> bool:
        known = self._known.get(name)
        if known is None or known.under != under:
            return False
        # What the manager couldn't tell may hang on a file elsewhere.
        return known.unit is None or known.unit.refusal is None

    async def _read_all(
        self, names: Collection[str], under: Mapping[str, _Under]
    ) -> dict[str, Unit | None]:
        """Read several at once. A unit that can't be read stays as it was known.

        Raises Transient if the manager doesn't answer.
        """
        limit = anyio.CapacityLimiter(_AT_ONCE)
        errors: list[Transient] = []
        found: dict[str, Unit | None] = {}

        async def read(name: str) -> None:
            before = self._known.get(name)
            async with limit:
                try:
                    if await self._relink(name, under[name]):
                        found[name] = self._known[name].unit
                    else:
                        found[name] = await self._read(name, under[name])
                except Transient as error:
                    errors.append(error)
                    if before is not None:
                        self._known[name] = before
                        found[name] = before.unit

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(read, name)
        for error in errors:
            if error.phase == "Unknown":
                raise error
        return found

    async def look(self, name: str) -> Unit | None:
        """One, fresh and whole."""
        rows = await self._rows([name])
        disk = await self._scan(name, [name])
        for place in (name, *disk[name].files):
            self._watcher.follow(f"{self._files.directory}/{place}")
        links = await self._links.fingerprint()
        return await self._read(
            name, (rows.get(name, ()), disk[name], links, self._bus.connections)
        )

    async def _scan(self, what: str, names: Collection[str]) -> dict[str, OnDisk]:
        doing = f"look at the files of {what}"
        return await self._threads.run(
            "look", what, doing, SCAN_TIMEOUT, lambda _job: self._files.scan(names)
        )

    async def _list_rows(self, names: Collection[str]) -> dict[str, Row]:
        """Return the rows of many units, from the list of those that the manager has in memory.

        A unit that isn't in that list, and was at rest before, still is at rest. A question by name
        would make the manager load every inactive unit from the disk.
        """
        loaded: dict[str, Row] = {}
        for _, _, load, active, sub, _, path, job, kind, _ in await self._bus.manager("ListUnits"):
            for name in self._names.get(path, ()):
                loaded[name] = (load, active, sub, path, str(job), kind)
        known = {name: self._known[name].under[0] for name in names if name in self._known}
        resting = {
            name: row
            for name, row in known.items()
            if not row or (row[1], row[4]) == ("inactive", "0")
        }
        rows = resting | {name: row for name, row in loaded.items() if name in known}
        return rows | await self._rows([name for name in names if name not in rows])

    async def _rows(self, names: Collection[str]) -> dict[str, Row]:
        """List load, active and sub state, object path, job id and type of each unit.

        Templates are no units to the manager: it would refuse them.
        """
        asked = [name for name in names if "@." not in name]
        listed = await self._bus.manager("ListUnitsByNames", "as", asked) if asked else []
        if len(listed) != len(asked):
            text = f"cannot list units: systemd told of {len(listed)} of {len(asked)}"
            raise Transient("SystemdRefused", text, phase="Unknown")
        rows: dict[str, Row] = {}
        for name, (_, _, load, active, sub, _, path, job, kind, _) in zip(
            asked, listed, strict=True
        ):
            rows[name] = (load, active, sub, path, str(job), kind)
            self._names.setdefault(path, set()).add(name)
        return rows

    async def _read(self, name: str, under: _Under) -> Unit | None:
        row, disk, links, _ = under
        self._known.pop(name, None)
        known = self._known[name] = _Known(
            None, under
        )  # an event in the meantime takes it out again
        seen: Mapping[str, tuple[str, Any]] = {}
        try:
            state, refusal = await self._file_state(name, links, disk)
            elsewhere = await self._links.elsewhere(name) if _enabled_elsewhere(state, disk) else ""
            if row:
                seen = await self._bus.call(row[3], PROPERTIES, "GetAll", "s", "")
            values = {key: value for key, (_, value) in seen.items()}
            unit = unit_of(name, row, disk, state, values, enabled_by=elsewhere, refusal=refusal)
            known.unit = unit and await self._diagnosis.complete(unit)
        except BaseException:
            self._known.pop(name, None)
            raise
        return known.unit

    async def _file_state(
        self, name: str, links: Fingerprint, disk: OnDisk
    ) -> tuple[str, Refusal | None]:
        """Return the unit file state; "" and the manager's words where it can't tell that.

        A file that it can't read may be one that is replaced: so this holds nothing back.
        """
        try:
            return await self._links.state(name, (links, disk.files)), None
        except Transient as error:
            if error.phase == "Unknown":
                raise
            return "", Refusal(error.reason, str(error))

    async def _relink(self, name: str, under: _Under) -> bool:
        """Ask only for the unit file state, if nothing else can have changed.

        Return whether that was enough.
        """
        known = self._known.get(name)
        row, disk, links, connection = under
        if (
            known is None
            or known.unit is None
            or (known.under[:2], known.under[3]) != ((row, disk), connection)
        ):
            return False
        state, refusal = await self._file_state(name, links, disk)
        if refusal is not None or known.unit.refusal is not None:
            return False
        if _enabled_elsewhere(state, disk) or bool(state) != bool(known.unit.unit_file_state):
            return False
        if self._known.get(name) is not known:
            return False
        self._known[name] = _Known(replace(known.unit, unit_file_state=state, enabled_by=""), under)
        return True

    def _on_unit(self, path: str) -> None:
        for name in self._names.get(path, ()):
            self._known.pop(name, None)
            self.changed.tell(name)

    def _on_path(self, path: str) -> None:
        self.changed.tell(path.removeprefix(f"{self._files.directory}/").partition(".d/")[0])

    def _on_reload(self, _begins: bool) -> None:
        """Drop what was stale.

        Units whose basis is the same are not read again: there may be 1,000.
        """
        for name in [
            name for name, known in self._known.items() if known.unit is None or known.unit.stale
        ]:
            del self._known[name]

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Tell `changed` as well, until cancelled; keeps the connection open."""
        with self.changed.listening(changed):
            await self._watch()

    async def _watch(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watcher.run, self._on_path)
            await self._stay_connected()

    async def _stay_connected(self) -> None:
        """Open the connection again when a call has found it lost."""
        pause = 0.5
        while True:
            try:
                await self._bus.connect()
                pause = 0.5
                await self._bus.lost.wait()
            except Transient:
                await anyio.sleep(pause)
                pause = min(10.0, pause * 2)

    def close(self) -> None:
        """Close the watches."""
        self._watcher.close()


def _enabled_elsewhere(state: str, disk: OnDisk) -> bool:
    return state.startswith("enabled") and not disk.links
