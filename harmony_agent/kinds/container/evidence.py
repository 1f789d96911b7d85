"""Container: what neither the list nor an inspection shows: a bound File that was replaced, an image's
name that moved, a stop by hand.

Asked only where an answer could change something. Must change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.container.facts import ContainerFacts, read
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.policy import bind_sources
from harmony_agent.topology.containers import Containers, ContainerState, EngineRefused
from harmony_agent.topology.env_files import EnvFiles
from scores.container import Container


class Evidence:
    """Completes what was observed of one device's containers."""

    def __init__(
        self, containers: Containers, env_files: EnvFiles, store: KindView[Container]
    ) -> None:
        self._containers, self._env_files, self._store = containers, env_files, store

    async def complete(self, name: str, found: Observed | None) -> Observed | None:
        """Add what more is to be known of `found`."""
        desired = self._store.desired(name)
        if found is None or found.main is None or desired is None:
            return found
        spec, facts = desired.spec, read(self._store.record(name))
        return replace(
            found,
            stale=await self._stale(spec, facts),
            moved=spec.pull == "never" and await self._moved(spec.image, found.main),
            stopped=spec.drift == "report" and _stopped(found.main, facts),
        )

    async def _stale(self, spec: Container, facts: ContainerFacts) -> tuple[str, ...]:
        """The bound Files of ours that were replaced since the start."""
        bound = [path for path in bind_sources(spec) if self._store.claimed(f"path:{path}")]
        if not bound or not facts.binds:
            return ()
        return stale(facts.binds, await self._env_files.identify(bound), bound)

    async def _moved(self, image: str, main: ContainerState) -> bool:
        """Tell if the image's name is another image's by now."""
        with suppress(EngineRefused):
            found = await self._containers.image(image)
            return found is not None and main.image_id not in ("", found.id)
        return False


def _stopped(main: ContainerState, facts: ContainerFacts) -> bool:
    """Tell if somebody else than the agent stopped it; podman 4.3 doesn't say."""
    return main.state == "exited" and main.stopped and facts.restart_from_run != main.run


def stale(
    started: Mapping[str, str], inodes: Mapping[str, str | None], bound: Iterable[str]
) -> tuple[str, ...]:
    """The bound Files that led to something else at the container's start. Unknown is the same.
    Pure.
    """
    return tuple(
        path
        for path in bound
        if (now := inodes.get(path)) is not None and started.get(path, now) != now
    )
