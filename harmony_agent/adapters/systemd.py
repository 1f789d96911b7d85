"""Units by systemd: implements `topology.units` over D-Bus and the unit directory. Decides nothing.

`survey` is cheap because of a cache: what was read of a unit holds as long as its row in the manager's list, its files,
the directories that decide on enablement, and the connection whose signals tell of changes are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from harmony_agent.adapters.filetree import Job
from harmony_agent.adapters.inotify import Watcher
from harmony_agent.adapters.systemd_bus import MANAGER, PROPERTIES, ROOT, Bus, NoSuchUnit, Scope
from harmony_agent.adapters.systemd_enablement import Enablement, Stamp
from harmony_agent.adapters.systemd_files import OnDisk, UnitFiles
from harmony_agent.adapters.systemd_journal import tail
from harmony_agent.adapters.systemd_reload import Reloads
from harmony_agent.adapters.systemd_seen import Row, unit_of
from harmony_agent.adapters.threads import Threads
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import Unit

FILE_TIMEOUT: Final = 20.0
RELOAD_TIMEOUT: Final = 60.0
JOB_PATIENCE: Final = 2.0
"""Seconds that a step waits for its job; what takes longer is looked at again later."""
_AT_ONCE: Final = 16
_FORGET: Final = 32
"""Every relist reads this fraction of the units anew, whatever the cache says."""
_Under = tuple[Row, OnDisk, Stamp, int]
"""What a unit was read under: its row, its files, the directories of links, and the connection."""


@dataclass(slots=True)
class _Known:
    """What was read of a unit."""

    unit: Unit | None
    under: _Under


class SystemdUnits:
    """The manager of `scope`; `directory` is its unit directory, `keep` where former files are kept aside."""

    def __init__(
        self, scope: Scope, directory: str, keep: str, *, patience: float = JOB_PATIENCE, gather: float = 5.0
    ) -> None:
        self._scope: Scope = scope
        self._files = UnitFiles(directory, keep)
        self._threads = Threads()
        self._watcher = Watcher()
        self._bus = Bus(scope)
        self._links = Enablement(self._bus, directory)
        self._reloads = Reloads(self._reload, gather)
        self._patience = patience
        self._known: dict[str, _Known] = {}
        self._names: dict[str, set[str]] = {}
        self._held: dict[str, int] = {}
        self._changed: Callable[[str], None] = lambda _name: None
        self._bus.on_unit = self._on_unit
        self._bus.on_reload = self._on_reload

    @property
    def directory(self) -> str:
        """The unit directory."""
        return self._files.directory

    async def version(self) -> str:
        """The manager's version, as it tells it."""
        properties = "org.freedesktop.DBus.Properties"
        _, value = await self._bus.call(ROOT, properties, "Get", "ss", MANAGER, "Version")
        return str(value)

    # Looking.

    async def survey(self, names: Collection[str]) -> Mapping[str, Unit]:
        """Those of `names` of which anything exists; reads anew only what may have changed."""
        rows = await self._rows(names)
        disk = await self._scan("all units", names)
        followed = [f"{self.directory}/{place}" for name in disk for place in (name, *disk[name].files)]
        self._watcher.retain(followed, {})
        links = await self._links.stamp()
        self._known = {name: known for name, known in self._known.items() if name in disk}
        for name in list(self._known)[: len(self._known) // _FORGET]:
            del self._known[name]
        under = {name: (rows.get(name, ()), disk[name], links, self._bus.connections) for name in disk}
        await self._read_all([name for name in disk if not self._holds(name, under[name])], under)
        await self._let_go([name for name in self._held if name not in names])
        found = ((name, self._known[name].unit) for name in names if name in self._known)
        return {name: unit for name, unit in found if unit is not None}

    def _holds(self, name: str, under: _Under) -> bool:
        known = self._known.get(name)
        return known is not None and known.under == under

    async def _read_all(self, names: Collection[str], under: Mapping[str, _Under]) -> None:
        """Read several at once. One that can't be read stays as it was known; no answer at all is an error."""
        limit = anyio.CapacityLimiter(_AT_ONCE)
        errors: list[Transient] = []

        async def read(name: str) -> None:
            before = self._known.get(name)
            async with limit:
                try:
                    await self._read(name, under[name])
                except Transient as error:
                    errors.append(error)
                    if before is not None:
                        self._known[name] = before

        async with anyio.create_task_group() as group:
            for name in names:
                group.start_soon(read, name)
        for error in errors:
            if error.phase == "Unknown":
                raise error

    async def look(self, name: str) -> Unit | None:
        """One, fresh and whole."""
        rows = await self._rows([name])
        disk = await self._scan(name, [name])
        for place in (name, *disk[name].files):
            self._watcher.follow(f"{self.directory}/{place}")
        links = await self._links.stamp()
        unit = await self._read(name, (rows.get(name, ()), disk[name], links, self._bus.connections))
        if unit is not None and unit.oneshot and unit.active_state == "activating":
            await self._hold(name)
        return unit

    async def _scan(self, what: str, names: Collection[str]) -> dict[str, OnDisk]:
        doing = f"look at the files of {what}"
        return await self._threads.run("look", what, doing, FILE_TIMEOUT, lambda _job: self._files.scan(names))

    async def _rows(self, names: Collection[str]) -> dict[str, Row]:
        """What the manager lists of each unit: load, active and sub state, object path, job id and type.

        Templates are no units to the manager: it would refuse them.
        """
        asked = [name for name in names if "@." not in name]
        listed = await self._bus.manager("ListUnitsByNames", "as", asked) if asked else []
        if len(listed) != len(asked):
            text = f"cannot list units: systemd told of {len(listed)} of {len(asked)}"
            raise Transient("SystemdRefused", text, phase="Unknown")
        rows: dict[str, Row] = {}
        for name, (_, _, load, active, sub, _, path, job, kind, _) in zip(asked, listed, strict=True):
            rows[name] = (load, active, sub, path, str(job), kind)
            self._names.setdefault(path, set()).add(name)
        return rows

    async def _read(self, name: str, under: _Under) -> Unit | None:
        row, disk, _, _ = under
        self._known.pop(name, None)
        known = self._known[name] = _Known(None, under)  # an event in the meantime takes it out again
        seen: Mapping[str, tuple[str, Any]] = {}
        try:
            state = await self._links.state(name)
            if row:
                seen = await self._bus.call(row[3], PROPERTIES, "GetAll", "s", "")
        except BaseException:
            self._known.pop(name, None)
            raise
        known.unit = unit_of(name, row, disk, state, {key: value for key, (_, value) in seen.items()})
        return known.unit

    # Events.

    def _on_unit(self, path: str) -> None:
        for name in self._names.get(path, ()):
            self._known.pop(name, None)
            self._changed(name)

    def _on_reload(self) -> None:
        """What was out of date no longer is. The rest looks the same: that of 1,000 units isn't read anew."""
        for name in [name for name, known in self._known.items() if known.unit is None or known.unit.stale]:
            del self._known[name]

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Tell of changes until cancelled; keeps the connection open."""
        self._changed = changed
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watcher.run, self._on_path)
                await self._stay_connected()
        finally:
            self._changed = lambda _name: None

    def _on_path(self, path: str) -> None:
        self._changed(path.removeprefix(f"{self.directory}/").partition(".d/")[0])

    async def _stay_connected(self) -> None:
        """Open the connection again when it is lost; some call finds out that it is."""
        pause = 0.5
        while True:
            try:
                await self._bus.connect()
                pause = 0.5
                await self._bus.lost.wait()
            except Transient:
                await anyio.sleep(pause)
                pause = min(10.0, pause * 2)

    # Files.

    async def write(self, name: str, place: str, content: str, keep: str) -> None:
        """Put a file there, atomically and durably."""
        data = content.encode()
        await self._in_thread(name, f"write {place}", lambda job: self._files.write(name, place, data, keep, job.check))

    async def remove(self, name: str, place: str, keep: str) -> None:
        """Take a file or link away; without its file, a unit needs no memory either."""
        if place == name:
            await self._let_go([name])
        await self._in_thread(name, f"remove {place}", lambda job: self._files.remove(name, place, keep, job.check))

    async def restore(self, name: str, place: str, former: str) -> None:
        """Put back what was there."""
        await self._in_thread(name, f"restore {place}", lambda job: self._files.restore(name, place, former, job.check))

    async def drop_kept(self, name: str) -> None:
        """Let go of what was kept aside."""
        await self._in_thread(name, f"drop former files of {name}", lambda _job: self._files.drop_kept(name))

    async def _in_thread(self, name: str, doing: str, work: Callable[[Job], None]) -> None:
        await self._threads.run("change", name, doing, FILE_TIMEOUT, work)

    # Links and reloads.

    def expect(self, names: Collection[str]) -> None:
        """One reload shall serve all of these."""
        self._reloads.expect(names)

    def done(self, name: str) -> None:
        """`name` writes no more files for now."""
        self._reloads.done(name)

    async def reload(self, name: str) -> None:
        """Return when the manager has loaded what `name` wrote."""
        await self._reloads.served(name)

    async def _reload(self) -> None:
        await self._bus.manager("Reload", within=RELOAD_TIMEOUT)

    async def enable(self, name: str) -> None:
        """Enable."""
        await self._links.enable(name)

    async def disable(self, name: str, *, runtime: bool) -> None:
        """Disable, and take away links that a unit file which is gone has left."""
        await self._links.disable(name, runtime=runtime)
        await self._in_thread(name, f"remove links to {name}", lambda _job: self._files.unlink_wants(name))

    async def mask(self, name: str) -> None:
        """Mask."""
        await self._links.mask(name)

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        """Unmask; False where there was no mask of this manager's own."""
        return await self._links.unmask(name, runtime=runtime)

    # Jobs.

    async def start(self, name: str) -> str:
        """Start. Held first, so that a unit that ends at once isn't forgotten with how it ended."""
        await self._hold(name)
        return await self._job("StartUnit", name)

    async def stop(self, name: str) -> str:
        """Stop. What was stopped on purpose needs no memory of how it ended."""
        result = await self._job("StopUnit", name)
        if result == "done":
            await self._let_go([name])
        return result

    async def restart(self, name: str) -> str:
        """Stop and start, or start."""
        await self._hold(name)
        return await self._job("RestartUnit", name)

    async def reload_unit(self, name: str) -> str:
        """Let it read its configuration again."""
        return await self._job("ReloadUnit", name)

    async def _job(self, member: str, name: str) -> str:
        self._reloads.done(name)
        return await self._bus.job(member, name, self._patience)

    async def reset_failed(self, name: str) -> None:
        """Forget that it failed."""
        try:
            await self._bus.manager("ResetFailedUnit", "s", name)
        except NoSuchUnit:
            return  # the manager has forgotten it whole

    async def _hold(self, name: str) -> None:
        """Keep the manager from forgetting a unit that has ended; it lasts as long as the connection."""
        if self._held.get(name) == self._bus.connections:
            return
        try:
            await self._bus.manager("RefUnit", "s", name)
        except NoSuchUnit:
            return
        except Transient as error:
            if error.reason == "AccessDenied":
                return  # a one-shot's end may then go unseen, and it is run again
            raise
        self._held[name] = self._bus.connections

    async def _let_go(self, names: Collection[str]) -> None:
        """Let the manager forget these units, once they have ended."""
        for name in names:
            if self._held.pop(name, 0) == self._bus.connections > 0:
                try:
                    await self._bus.manager("UnrefUnit", "s", name)
                except NoSuchUnit:
                    continue

    async def logs(self, name: str, lines: int) -> list[str]:
        """The last lines of its journal."""
        return await tail(self._scope, name, lines)

    async def close(self) -> None:
        """Let go of the connection."""
        self._watcher.close()
        self._bus.close()
