"""`topology.packages.Packages` by dpkg's own file of states, which is read anew when it was replaced.

Must not run dpkg, nor take its lock.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from harmony_agent.adapters.posix.executor import BoundedExecutor
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.core.errors import Transient
from harmony_agent.topology.packages import PackageState

STATUS: Final = "/var/lib/dpkg/status"
_SECONDS: Final = 20.0
_GONE: Final = ("not-installed", "config-files")


class DpkgPackages:
    """The packages of this machine. What is kept is of the names that were asked for last."""

    def __init__(self, status: str = STATUS) -> None:
        self._status = status
        self._threads = BoundedExecutor(transient)
        self._seen: tuple[object, ...] = ()
        self._found: Mapping[str, PackageState] = {}

    async def look(self, names: Collection[str]) -> Mapping[str, PackageState]:
        """Implement `Packages.look`. A look at an unchanged file is one stat."""
        wanted = frozenset(names)
        return await self._threads.run(
            "packages", self._status, "look at packages", _SECONDS, lambda _job: self._look(wanted)
        )

    def _look(self, names: frozenset[str]) -> Mapping[str, PackageState]:
        try:
            with Path(self._status).open("rb") as file:
                at = os.fstat(file.fileno())
                seen = (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, names)
                if seen != self._seen:
                    self._found = dict(_known(file, names))
                    self._seen = seen
        except OSError as error:
            text = f"cannot read {self._status}: {error.strerror}: this device has no dpkg, or a broken disk"
            raise Transient("PackagesUnreadable", text, phase="Unknown") from error
        return self._found


def _known(lines: Iterator[bytes], names: frozenset[str]) -> Iterator[tuple[str, PackageState]]:
    """Each of `names` that is there; of several architectures one that can be used."""
    usable: set[str] = set()
    for name, state in _stanzas(lines, names):
        if state.state not in _GONE and name not in usable:
            yield name, state
        if state.usable:
            usable.add(name)


def _stanzas(lines: Iterator[bytes], names: frozenset[str]) -> Iterator[tuple[str, PackageState]]:
    name, fields = "", dict[str, str]()
    for raw in lines:
        if raw.startswith(b"Package: "):
            name = raw[9:].decode("ascii", "replace").strip()
            fields = {}
        elif name in names and raw.startswith((b"Status: ", b"Version: ")):
            key, _, value = raw.decode("ascii", "replace").partition(": ")
            fields[key] = value.strip()
            if len(fields) == 2:
                yield name, PackageState(fields["Version"], fields["Status"].rpartition(" ")[2])
