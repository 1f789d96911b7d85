"""Container: what neither the list nor an inspection shows: a bound File that was replaced, an image's
name that moved, a stop by hand.

Asked only where an answer could change something. Must change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from harmony_agent.core.reconciler import KindView
from harmony_agent.core.runs import runs_again
from harmony_agent.kinds.container.facts import read
from harmony_agent.kinds.container.observed import End, Observed
from harmony_agent.kinds.container.policy import bind_sources
from harmony_agent.topology.containers import Containers, ContainerState, EngineRefused, Image
from harmony_agent.topology.env_files import EnvFiles
from scores.container import Container

SETTLED: Final = timedelta(seconds=3)
"""So long after an end, podman's events tell who ended it: 0.1 s was the most that was seen."""


class Evidence:
    """Completes what was observed of one device's containers."""

    def __init__(
        self,
        containers: Containers,
        env_files: EnvFiles,
        store: KindView[Container],
        now: Callable[[], datetime],
    ) -> None:
        self._containers, self._env_files, self._store = containers, env_files, store
        self._now = now
        self._ended: dict[str, tuple[str, End]] = {}
        """by name, the last run that was asked about, and who ended it"""

    async def complete(self, found: Mapping[str, Observed]) -> dict[str, Observed]:
        """Add what more is to be known. Each bind is identified and each image is asked for once."""
        bound = {name: self._bound(name) for name, seen in found.items() if seen.main is not None}
        paths = {path for of_one in bound.values() for path in of_one}
        inodes = await self._env_files.identify(paths) if paths else {}
        images = await self._images(bound)
        ends = {name: await self._end(name, seen.main) for name, seen in found.items()}
        return {
            name: replace(
                self._completed(name, seen, bound.get(name, ()), inodes, images), end=ends[name]
            )
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
        )

    async def _end(self, name: str, main: ContainerState | None) -> End:
        """Tell who ended its last run, where that decides if it runs again."""
        desired = self._store.desired(name)
        if main is None or main.state != "exited" or desired is None:
            return ""
        ours = read(self._store.record(name)).restart_from_run == main.run
        spec = desired.spec
        if spec.drift != "report" or ours or not runs_again(spec.restart, main.exit_code):
            return ""
        if main.stopped is not None:
            return "by-hand" if main.stopped else ""
        run, end = self._ended.get(name, ("", ""))
        return end if run == main.run else await self._by_events(name, main)

    async def _by_events(self, name: str, main: ContainerState) -> End:
        """Ask podman's events, once for each run."""
        stopped = None
        with suppress(EngineRefused):
            stopped = await self._containers.was_stopped(main)
        age = self._now() - main.finished if main.finished is not None else SETTLED
        if not stopped and timedelta() <= age < SETTLED:
            return "recent"
        end: End = "unexplained" if stopped is None else "by-hand" if stopped else ""
        self._ended[name] = main.run, end
        return end

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
