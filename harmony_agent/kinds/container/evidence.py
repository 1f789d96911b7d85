"""Container: what neither the list nor an inspection shows: a bound File that was replaced, an image's
name that moved, a stop by hand.

Asked only where an answer could change something. Must change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.container.facts import ContainerFacts, read
from harmony_agent.kinds.container.observed import Observed
from harmony_agent.kinds.container.policy import bind_sources
from harmony_agent.topology.containers import Containers, ContainerState, EngineRefused, Image
from harmony_agent.topology.env_files import EnvFiles
from scores.container import Container


class Evidence:
    """Completes what was observed of one device's containers."""

    def __init__(
        self, containers: Containers, env_files: EnvFiles, store: KindView[Container]
    ) -> None:
        self._containers, self._env_files, self._store = containers, env_files, store

    async def complete(self, found: Mapping[str, Observed]) -> dict[str, Observed]:
        """Add what more is to be known. Each bind is identified and each image is asked for once."""
        bound = {name: self._bound(name) for name, seen in found.items() if seen.main is not None}
        paths = {path for of_one in bound.values() for path in of_one}
        inodes = await self._env_files.identify(paths) if paths else {}
        images = await self._images(bound)
        return {
            name: self._completed(name, seen, bound.get(name, ()), inodes, images)
            for name, seen in found.items()
        }

    def _completed(
        self,
        name: str,
        seen: Observed,
        bound: Sequence[str],
        inodes: Mapping[str, str | None],
        images: Mapping[str, Image | None],
    ) -> Observed:
        desired = self._store.desired(name)
        if seen.main is None or desired is None:
            return seen
        spec, facts = desired.spec, read(self._store.record(name))
        return replace(
            seen,
            stale=stale(facts.binds or {}, inodes, bound),
            moved=spec.pull == "never" and _moved(seen.main, images.get(spec.image)),
            stopped=spec.drift == "report" and _stopped(seen.main, facts),
        )

    def _bound(self, name: str) -> list[str]:
        """The bound Files of ours whose start is on record."""
        desired = self._store.desired(name)
        if desired is None or not read(self._store.record(name)).binds:
            return []
        sources = bind_sources(desired.spec)
        return [path for path in sources if self._store.claimed(f"path:{path}")]

    async def _images(self, names: Iterable[str]) -> dict[str, Image | None]:
        """The images by name that nothing pulls; one that podman refuses is left out."""
        wanted = [self._store.desired(name) for name in names]
        images: dict[str, Image | None] = {}
        for name in dict.fromkeys(
            one.spec.image for one in wanted if one is not None and one.spec.pull == "never"
        ):
            with suppress(EngineRefused):
                images[name] = await self._containers.image(name)
        return images


def _moved(main: ContainerState, image: Image | None) -> bool:
    """Tell if the image's name is another image's by now."""
    return image is not None and main.image_id not in ("", image.id)


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
