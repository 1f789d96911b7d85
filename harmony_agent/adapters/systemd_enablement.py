"""Which units are enabled or masked, and changing that, through the manager's own methods.

The manager searches the disk for every such question, so answers are remembered as long as the directories that they
depend on are unchanged.
"""

from __future__ import annotations

import os
from typing import Final

import anyio.to_thread

from harmony_agent.adapters.systemd_bus import MANAGER, PROPERTIES, ROOT, Bus, NoSuchUnit
from harmony_agent.core.errors import Transient

_LINKS: Final = (".wants", ".requires", ".upholds")
Stamp = tuple[tuple[str, int], ...]


class Enablement:
    """Asks and changes enablement over `bus`; `directory` is where our unit files are."""

    def __init__(self, bus: Bus, directory: str) -> None:
        self._bus = bus
        self._directory = directory
        self._paths: tuple[int, list[str]] = (0, [])
        self._folders: dict[str, tuple[int, list[str]]] = {}

    async def stamp(self) -> Stamp:
        """Another value whenever an answer of `state` may have changed."""
        connection, paths = self._paths
        if connection != self._bus.connections or not paths:
            _, paths = await self._bus.call(ROOT, PROPERTIES, "Get", "ss", MANAGER, "UnitPath")
            if not await anyio.to_thread.run_sync(_among, self._directory, paths):
                text = f"cannot use {self._directory}: systemd doesn't search it for units; set [systemd] scope rightly"
                raise Transient("UnitDirectoryNotSearched", text, phase="Blocked", delay=60.0)
            self._paths = (self._bus.connections, paths)
        return await anyio.to_thread.run_sync(self._stamp, paths)

    def _stamp(self, paths: list[str]) -> Stamp:
        found: list[tuple[str, int]] = []
        for path in paths:
            at = _mtime(path)
            if at == 0:
                continue
            known = self._folders.get(path)
            if known is None or known[0] != at:
                with os.scandir(path) as entries:
                    folders = [entry.path for entry in entries if entry.name.endswith(_LINKS)]
                known = self._folders[path] = (at, folders)
            found.append((path, at))
            found += [(folder, _mtime(folder)) for folder in known[1]]
        return tuple(found)

    async def state(self, name: str) -> str:
        """``enabled``, ``disabled``, ``static``, ``masked``, …; "" where there is no unit file."""
        try:
            return str(await self._bus.manager("GetUnitFileState", "s", name))
        except NoSuchUnit:
            return ""

    async def enable(self, name: str) -> None:
        """Enable durably."""
        await self._bus.manager("EnableUnitFiles", "asbb", [name], False, False)

    async def disable(self, name: str, *, runtime: bool) -> None:
        """Disable, durably and, with `runtime`, until the next boot as well."""
        for until_boot in (False, True) if runtime else (False,):
            try:
                await self._bus.manager("DisableUnitFiles", "asb", [name], until_boot)
            except NoSuchUnit:
                continue

    async def mask(self, name: str) -> None:
        """Mask durably."""
        await self._bus.manager("MaskUnitFiles", "asbb", [name], False, False)

    async def unmask(self, name: str, *, runtime: bool) -> bool:
        """Unmask; whether anything changed."""
        changes = await self._bus.manager("UnmaskUnitFiles", "asb", [name], runtime)
        return bool(changes)


def _among(directory: str, paths: list[str]) -> bool:
    return os.path.realpath(directory) in map(os.path.realpath, paths)


def _mtime(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
