"""Tell at once when a process of a session ends, its server ends, or the socket goes.

It holds one pidfd for each process and one inotify descriptor. At rest it costs nothing else: it polls nothing, and is no
client of tmux. An event may be missed: the relist finds the rest.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Final

from harmony_agent.adapters.posix.inotify import ENTRIES, Watcher

MOST: Final = 256
"""Processes that are followed: an agent may have 1,024 descriptors."""
REAP_SECONDS: Final = 0.1
"""By then the server knows how the process ended."""


class Ends:
    """Follows the processes that were listed last. Everything runs on the event loop."""

    def __init__(self, socket: str) -> None:
        self._socket = socket
        self._changed: Callable[[str], None] | None = None
        self._names: Mapping[int, Collection[str]] = {}
        self._open: dict[int, int] = {}  # process -> pidfd
        self._told: set[int] = set()

    async def run(self, changed: Callable[[str], None]) -> None:
        """Call `changed` with the name of each resource that an event concerns, until cancelled."""
        self._changed = changed
        watcher = Watcher(ENTRIES)
        watcher.follow(self._socket)
        try:
            await watcher.run(lambda _path: self._tell(self._all()))
        finally:
            self._changed = None
            for process in list(self._open):
                self._drop(process)

    def follow(self, names: Mapping[int, Collection[str]]) -> None:
        """Follow these processes and no others. `names` are the resources that each concerns."""
        if self._changed is None:
            return
        self._names = names
        self._told &= names.keys()
        for process in self._open.keys() - names.keys():
            self._drop(process)
        new = (pid for pid in names if pid not in self._open and pid not in self._told)
        for process in islice(new, MOST - len(self._open)):
            self._add(process)

    def _add(self, process: int) -> None:
        try:
            descriptor = os.pidfd_open(process)
        except OSError:  # it has ended since, or may not be followed: the relist tells
            return
        self._open[process] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, process)

    def _drop(self, process: int) -> None:
        descriptor = self._open.pop(process)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    def _ended(self, process: int) -> None:
        """Tell once for each process: one that nobody reaps would be told for ever."""
        self._drop(process)
        self._told.add(process)
        names = tuple(self._names.get(process, ()))
        asyncio.get_running_loop().call_later(REAP_SECONDS, self._tell, names)

    def _tell(self, names: Collection[str]) -> None:
        if self._changed is not None:
            for name in names:
                self._changed(name)

    def _all(self) -> Collection[str]:
        return {name for names in self._names.values() for name in names}
