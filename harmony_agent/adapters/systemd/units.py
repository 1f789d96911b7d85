"""Units by systemd: implements `topology.units` over D-Bus and the unit directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import Final

from harmony_agent.adapters.posix.executor import BoundedExecutor, Job
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.adapters.systemd.bus import MANAGER, PROPERTIES, ROOT, Bus, NoSuchUnit, Scope
from harmony_agent.adapters.systemd.diagnosis import Diagnosis
from harmony_agent.adapters.systemd.enablement import Enablement
from harmony_agent.adapters.systemd.journal import cursor, finished, tail
from harmony_agent.adapters.systemd.observer import UnitObserver
from harmony_agent.adapters.systemd.reload_batch import Reloads
from harmony_agent.adapters.systemd.unit_files import UnitFiles
from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine
from harmony_agent.topology.units import REFUSED, Unit

FILE_TIMEOUT: Final = 20.0
RELOAD_TIMEOUT: Final = 60.0
JOB_PATIENCE: Final = 2.0
"""Seconds that a step waits for its job. A later pass looks at a longer one."""


class SystemdUnits:
    """The manager of `scope`. `directory` is its unit directory, `keep` that of backups."""

    def __init__(
        self,
        scope: Scope,
        directory: str,
        keep: str,
        *,
        patience: float = JOB_PATIENCE,
        gather: float = 5.0,
    ) -> None:
        self._scope: Scope = scope
        unprivileged = scope == "system" and os.geteuid() != 0
        self._files = UnitFiles(
            directory, keep, runtime=_runtime_directory(scope), to_root=unprivileged
        )
        self._threads = BoundedExecutor(transient)
        self._bus = Bus(scope)
        self._links = Enablement(self._bus, directory, self._threads, on_disk=unprivileged)
        self._observer = UnitObserver(
            self._bus, self._files, self._links, self._threads, Diagnosis(scope)
        )
        self._reloads = Reloads(self._reload, gather)
        self._patience = patience
        self._held: dict[str, int] = {}

    @property
    def directory(self) -> str:
        """The unit directory."""
        return self._files.directory

    async def version(self) -> str:
        """The manager's version, as it tells it."""
        _, value = await self._bus.call(ROOT, PROPERTIES, "Get", "ss", MANAGER, "Version")
        return str(value)

    # Looking.

    async def list_units(self, names: Collection[str]) -> Mapping[str, Unit]:
        """Return those of `names` of which anything exists. Reads what may have changed."""
        found = await self._observer.list_units(names)
        await self._let_go([name for name in self._held if name not in names])
        return found

    async def look(self, name: str) -> Unit | None:
        """Read one, fresh and whole. A one-shot that runs is held until its end is known. One whose
        files are refused isn't: the next look has the manager load it anew.
        """
        unit = await self._observer.look(name)
        if unit is not None and unit.load_state in REFUSED:
            await self._let_go([name])
        if unit is not None and unit.oneshot and unit.active_state == "activating":
            await self._hold(name)
        return unit

    async def watch(self, changed: Callable[[str], None]) -> None:
        """Tell of changes until cancelled."""
        await self._observer.watch(changed)

    # Files.

    async def write(self, name: str, place: str, content: str, keep: str) -> None:
        """Write a file, atomically and durably."""
        data = content.encode()
        await self._in_thread(
            name,
            f"write {place}",
            lambda job: self._files.write(name, place, data, keep, job.check),
        )

    async def remove(self, name: str, place: str, keep: str) -> None:
        """Remove a file or link. A unit without its file is no longer held."""
        if place == name:
            await self._let_go([name])
        await self._in_thread(
            name, f"remove {place}", lambda job: self._files.remove(name, place, keep, job.check)
        )

    async def keep(self, name: str, place: str, keep: str) -> None:
        """Back up the file that stands there."""
        await self._in_thread(
            name, f"keep {place}", lambda job: self._files.keep(name, place, keep, job.check)
        )

    async def relink(self, name: str, links: Mapping[str, str]) -> None:
        """Make the unit's links exactly these."""
        await self._in_thread(
            name, f"link {name}", lambda job: self._files.relink(name, links, job.check)
        )

    async def restore(self, name: str, place: str, former: str) -> None:
        """Put back what was there."""
        await self._in_thread(
            name,
            f"restore {place}",
            lambda job: self._files.restore(name, place, former, job.check),
        )

    async def drop_backups(self, name: str) -> None:
        """Remove the backups of `name`."""
        await self._in_thread(
            name, f"drop former files of {name}", lambda _job: self._files.drop_backups(name)
        )

    async def _in_thread(self, name: str, doing: str, work: Callable[[Job], None]) -> None:
        await self._threads.run("change", name, doing, FILE_TIMEOUT, work)

    # Links and reloads.

    def batch_begin(self, names: Collection[str]) -> None:
        """Expect these to write: one reload serves all of them."""
        self._reloads.batch_begin(names)

    def batch_end(self, name: str) -> None:
        """`name` writes no more files for now."""
        self._reloads.batch_end(name)

    async def reload(self, name: str) -> None:
        """Return when the manager has loaded what `name` wrote."""
        await self._reloads.served(name)

    async def _reload(self) -> None:
        await self._bus.manager("Reload", within=RELOAD_TIMEOUT)

    async def enable(self, name: str) -> None:
        """Enable."""
        await self._links.enable(name)

    async def disable(self, name: str, *, runtime: bool) -> None:
        """Disable, and remove the links that a former unit file has left.

        If the unit itself is a link, the manager would remove that too.
        """
        doing, links = f"remove links to {name}", self._files.link_in_place(name)
        if links:
            await self._in_thread(
                name, doing, lambda job: self._files.relink(name, links, job.check)
            )
            return
        await self._links.disable(name, runtime=runtime)
        await self._in_thread(
            name, doing, lambda job: self._files.unlink_wants(name, job.check, runtime=runtime)
        )

    async def mask(self, name: str) -> None:
        """Mask."""
        await self._links.mask(name)

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        """Unmask; False where there was no mask of this manager's own."""
        return await self._links.unmask(name, runtime=runtime)

    # Jobs.

    async def start(self, name: str) -> str:
        """Start. The unit is held first: else the manager forgets how a short one ended."""
        await self._hold(name)
        await self.reset_failed(name)  # systemd counts starts; the agent paces its own
        return await self._job("StartUnit", name)

    async def stop(self, name: str) -> str:
        """Stop. A unit that was stopped on purpose is no longer held."""
        result = await self._job("StopUnit", name)
        if result == "done":
            await self._let_go([name])
        return result

    async def restart(self, name: str) -> str:
        """Stop and start, or start."""
        await self._hold(name)
        await self.reset_failed(name)
        return await self._job("RestartUnit", name)

    async def reload_unit(self, name: str) -> str:
        """Let it read its configuration again."""
        return await self._job("ReloadUnit", name)

    async def _job(self, member: str, name: str) -> str:
        self._reloads.batch_end(name)
        return await self._bus.job(member, name, self._patience)

    async def reset_failed(self, name: str) -> None:
        """Forget that it failed."""
        try:
            await self._bus.manager("ResetFailedUnit", "s", name)
        except NoSuchUnit:
            return  # the manager has forgotten it whole

    async def _hold(self, name: str) -> None:
        """Keep the manager from forgetting a unit that has ended, while the connection lasts."""
        if self._held.get(name) == self._bus.connections:
            return
        try:
            await self._bus.manager("RefUnit", "s", name)
        except NoSuchUnit:
            return
        except Transient as error:
            if error.reason == "AccessDenied":
                return  # the end of a one-shot may go unseen, and it runs again
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

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        """The last lines of its journal."""
        return await tail(self._scope, name, lines, seconds)

    def journal_cursor(self) -> str:
        """Return the present moment, for `finished`."""
        return cursor()

    async def finished(self, name: str, moment: str) -> bool:
        """Return whether the journal says that a start after `moment` ended well."""
        return await finished(self._scope, name, moment)

    async def close(self) -> None:
        """Close the connection."""
        self._observer.close()
        self._bus.close()


def _runtime_directory(scope: Scope) -> str:
    """Return the manager's directory of what lasts until the next boot."""
    if scope == "system":
        return "/run/systemd/system"
    return f"{os.environ.get('XDG_RUNTIME_DIR') or f'/run/user/{os.getuid()}'}/systemd/user"
