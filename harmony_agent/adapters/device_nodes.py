"""`topology.device_nodes.DeviceNodes` on the file system: looks at nodes, and hears by inotify when
they come and go. Must not open a node: that alone resets some boards.
"""

from __future__ import annotations

import grp
import os
import stat
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final, Literal

from harmony_agent.adapters.posix.executor import BoundedExecutor
from harmony_agent.adapters.posix.inotify import ENTRIES, Watcher
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.topology.device_nodes import DeviceNode

_SECONDS: Final = 20.0


class LocalDeviceNodes:
    """Nodes of this machine. `rootless`: the engine's root is this process' user."""

    def __init__(self, *, rootless: bool) -> None:
        self._rootless = rootless
        self._threads = BoundedExecutor(transient)
        self._watcher = Watcher(ENTRIES)  # no writes: each to /dev/null would be heard
        self._leads: dict[str, str] = {}
        """where each followed path led when it was looked at last"""

    async def look(self, paths: Collection[str]) -> Mapping[str, DeviceNode | None]:
        """Implement `DeviceNodes.look`. It follows first, so that nothing is missed between."""
        for path in paths:
            self._watcher.follow(path)
        key = "\n".join(sorted(paths))
        found = await self._threads.run(
            "device nodes",
            key,
            "look at device nodes",
            _SECONDS,
            lambda _job: {path: _node(path, rootless=self._rootless) for path in paths},
        )
        for path, node in found.items():
            if node is None or node.path == path:
                self._leads.pop(path, None)
            else:
                self._leads[path] = node.path
                self._watcher.follow(node.path)
        return found

    def retain(self, paths: Sequence[str]) -> None:
        """Implement `DeviceNodes.retain`."""
        self._leads = {path: real for path, real in self._leads.items() if path in paths}
        followed = dict.fromkeys([*paths, *self._leads.values()])
        self._watcher.retain(tuple(followed), {})

    def listening(self, changed: Callable[[str], None]) -> AbstractContextManager[None]:
        """Implement `DeviceNodes.listening`."""

        def hear(path: str) -> None:
            changed(path)
            for named, real in self._leads.items():
                if real == path:
                    changed(named)

        return self._watcher.listening(hear)


def _node(path: str, *, rootless: bool) -> DeviceNode | None:
    real = os.path.realpath(path)
    try:
        found = os.stat(real)
    except OSError:
        return None
    asked = (("r", os.R_OK), ("w", os.W_OK))
    access = "".join(name for name, mode in asked if not rootless or os.access(real, mode))
    numbers = os.major(found.st_rdev), os.minor(found.st_rdev)
    return DeviceNode(real, _type(found.st_mode), *numbers, found.st_ino, _group(found), access)


def _type(mode: int) -> Literal["c", "b", ""]:
    if stat.S_ISCHR(mode):
        return "c"
    return "b" if stat.S_ISBLK(mode) else ""


def _group(found: os.stat_result) -> str:
    try:
        return grp.getgrgid(found.st_gid).gr_name
    except KeyError:
        return str(found.st_gid)
