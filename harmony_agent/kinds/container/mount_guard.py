"""Container: looks again at what a container would get of the device, right before it is made."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_agent.core.errors import Transient
from harmony_agent.core.paths import PathSet
from harmony_agent.kinds.container.policy import binds
from harmony_agent.topology.env_files import EnvFiles
from scores.container import Container


class MountGuard:
    """Looks again before a container is made: a source may be a link by now. No bind may touch
    `closed`.
    """

    def __init__(self, disk: EnvFiles, closed: Sequence[str]) -> None:
        self._disk, self._closed = disk, PathSet(closed)

    async def check(self, spec: Container) -> None:
        """Transient where a bind leads to what is closed."""
        sources = dict.fromkeys(source for _, source in binds(spec))
        if not sources or not self._closed:
            return
        real = await self._disk.resolve(list(sources))
        for source in sources:
            if self._closed.touched_by(real[source]):
                text = f"cannot mount {source}: it leads to what no container may have: mount another path"
                raise Transient("MountForbidden", text, phase="Blocked", delay=60.0)
