"""Device nodes: what stands below /dev under a name, and when that changes. No library, no I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from harmony_agent.core.frozen import frozen


@frozen()
class DeviceNode:
    """A node as it stands there now.

    `path` is where all links lead, `type` "" where that is no device node. `inode` tells one plug
    from the next. `group` owns it; `access` is what the engine's root may do, of r and w.
    """

    path: str
    type: Literal["c", "b", ""] = ""
    major: int = 0
    minor: int = 0
    inode: int = 0
    group: str = ""
    access: str = "rw"

    @property
    def number(self) -> str:
        """Path and numbers: what a container is made of."""
        return f"{self.path} {self.type} {self.major}:{self.minor}"

    @property
    def plug(self) -> str:
        """The same, with what differs when it was plugged in anew."""
        return f"{self.number} {self.inode}"


class DeviceNodes(Protocol):
    """The nodes of one device. `look` raises Transient if the disk doesn't answer in time."""

    async def look(self, paths: Collection[str]) -> Mapping[str, DeviceNode | None]:
        """Tell what stands at each path, and follow it from now on. None where nothing does."""
        ...

    def retain(self, paths: Sequence[str]) -> None:
        """Follow these and no others."""
        ...

    def listening(self, changed: Callable[[str], None]) -> AbstractContextManager[None]:
        """While it lasts, call `changed` with each followed path at which something may have
        changed.
        """
        ...
