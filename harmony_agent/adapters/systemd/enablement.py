"""Read and change which units are enabled or masked, through the manager's own methods.

The manager searches the disk for every such question. An answer is kept as long as the directories
that it depends on are unchanged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from typing import Final, TypeVar

import anyio

from harmony_agent.adapters.posix.executor import BoundedExecutor
from harmony_agent.adapters.posix.stat_cache import StatCache, is_settled
from harmony_agent.adapters.systemd.bus import MANAGER, PROPERTIES, ROOT, Bus, NoSuchUnit
from harmony_agent.adapters.systemd.links import LINK_DIRECTORIES
from harmony_agent.core.errors import Transient

T = TypeVar("T")
_PATIENCE: Final = 30.0
Fingerprint = tuple[tuple[str, int], ...]


class Enablement:
    """Asks and changes enablement over `bus`. The agent's unit files are in `directory`.

    With `on_disk`, `systemctl` makes and removes the links, with the rights of this process. The
    manager would ask polkit without the unit's name, and polkit's yes would hold for every unit.
    """

    def __init__(
        self, bus: Bus, directory: str, threads: BoundedExecutor, *, on_disk: bool = False
    ) -> None:
        self._bus = bus
        self._threads = threads
        self._on_disk = on_disk
        self._directory = directory
        self._paths: tuple[int, list[str]] = (0, [])
        self._folders = StatCache[list[str]]()
        self._states: dict[str, tuple[object, str]] = {}

    async def fingerprint(self) -> Fingerprint:
        """Return another value whenever an answer of `state` may have changed."""
        connection, paths = self._paths
        if connection != self._bus.connections or not paths:
            _, paths = await self._bus.call(ROOT, PROPERTIES, "Get", "ss", MANAGER, "UnitPath")
            if not await self._in_thread("", lambda: _among(self._directory, paths)):
                text = f"cannot use {self._directory}: systemd doesn't search it for units; set [systemd] scope rightly"
                raise Transient("UnitDirectoryNotSearched", text, phase="Blocked", delay=60.0)
            self._paths = (self._bus.connections, paths)
        return await self._in_thread("", lambda: self._fingerprint(paths))

    async def _in_thread(self, name: str, work: Callable[[], T]) -> T:
        doing = f"look at links of {name or 'all units'}"
        return await self._threads.run("look", doing, doing, _PATIENCE, lambda _job: work())

    def _fingerprint(self, paths: list[str]) -> Fingerprint:
        found: list[tuple[str, int]] = []
        looked = time.time()
        for path in paths:
            at = _mtime(path)
            if at == 0:
                continue
            folders = self._folders.find(path, (at,))
            if folders is None:
                with os.scandir(path) as entries:
                    links = (entry for entry in entries if entry.name.endswith(LINK_DIRECTORIES))
                    folders = [entry.path for entry in links]
                self._folders.put(path, (at,), folders, settled=is_settled(at, looked))
            found.append((path, at))
            found += [(folder, _mtime(folder)) for folder in folders]
        if not all(is_settled(at, looked) for _, at in found):
            found.append(("still changing", time.time_ns()))
        return tuple(found)

    async def state(self, name: str, under: object) -> str:
        """Return ``enabled``, ``disabled``, ``static``, ``masked``, …; "" without a unit file.

        `under` is the basis of the answer: the fingerprint, and the unit's own files.
        """
        known = self._states.get(name)
        if known is not None and known[0] == under:
            return known[1]
        try:
            state = str(await self._bus.manager("GetUnitFileState", "s", name))
        except NoSuchUnit:
            state = ""
        self._states[name] = (under, state)
        return state

    async def elsewhere(self, name: str) -> str:
        """Return a link that enables the unit in another directory than ours; "" if none does."""
        await self.fingerprint()
        return await self._in_thread(name, lambda: self._elsewhere(name))

    def _elsewhere(self, name: str) -> str:
        ours = os.path.realpath(self._directory)
        others = (path for path in self._paths[1] if os.path.realpath(path) != ours)
        entries = (entry for path in others if (entry := self._folders.last(path)) is not None)
        links = (f"{folder}/{name}" for entry in entries for folder in entry.value)
        found = next((link for link in links if os.path.islink(link)), "")
        return f"{os.path.realpath(os.path.dirname(found))}/{name}" if found else ""

    def retain(self, names: Collection[str]) -> None:
        """Forget all others."""
        self._states = {name: known for name, known in self._states.items() if name in names}

    async def enable(self, name: str) -> None:
        """Enable durably."""
        if self._on_disk:
            await _systemctl("enable", name)
        else:
            await self._bus.manager("EnableUnitFiles", "asbb", [name], False, False)

    async def disable(self, name: str, *, runtime: bool) -> None:
        """Disable, durably and, with `runtime`, until the next boot as well."""
        if self._on_disk:
            await _systemctl("disable", name)
            return
        for until_boot in (False, True) if runtime else (False,):
            try:
                await self._bus.manager("DisableUnitFiles", "asb", [name], until_boot)
            except NoSuchUnit:
                continue

    async def mask(self, name: str) -> None:
        """Mask durably."""
        if self._on_disk:
            await _systemctl("mask", name)
        else:
            await self._bus.manager("MaskUnitFiles", "asbb", [name], False, False)

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        """Unmask. Return whether anything changed."""
        if self._on_disk:
            path = f"{self._directory}/{name}"
            masked = await self._in_thread(name, lambda: os.path.islink(path))
            await _systemctl("unmask", name)
            return masked
        changes = await self._bus.manager("UnmaskUnitFiles", "asb", [name], runtime)
        return bool(changes)


async def _systemctl(verb: str, name: str) -> None:
    """Change links on the disk alone: `--root` keeps systemctl from the manager.

    Raises Transient.
    """
    argv = ["systemctl", "--root=/", "--no-ask-password", "--quiet", verb, "--", name]
    try:
        with anyio.fail_after(_PATIENCE):
            done = await anyio.run_process(argv, check=False)
    except (OSError, TimeoutError) as error:
        raise Transient(
            "UnitFileError", f"cannot {verb} {name}: systemctl gave no answer"
        ) from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip()[-200:]
        raise Transient("UnitFileError", f"cannot {verb} {name}: {said}")


def _among(directory: str, paths: list[str]) -> bool:
    return os.path.realpath(directory) in map(os.path.realpath, paths)


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
