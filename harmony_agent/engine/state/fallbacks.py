"""What each deployment may go back to, mirrored in memory: durable before it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import anyio

from harmony_agent.core.manifests import StoredManifest
from harmony_agent.core.reverts import Fallback, Trial
from harmony_agent.topology.control_plane import Ledger
from scores.base import Score
from scores.manifest import InvalidManifest, WireManifest, parse, validate


class Fallbacks:
    """By deployment; most have none."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held = {one.deployment: one for one in ledger.fallbacks()}
        self._read: dict[str, Sequence[Score]] = {}
        """Scores of the manifest that was read last, by its digest"""
        self._unwritten = False
        """memory is ahead of the disk"""
        self._writing = anyio.Lock()

    def __bool__(self) -> bool:
        return bool(self._held)

    def of(self, deployment: str) -> Fallback:
        """That of a deployment; an empty one where nothing is remembered."""
        return self._held.get(deployment) or Fallback(deployment)

    def tried(
        self, stored: Mapping[str, StoredManifest]
    ) -> Iterator[tuple[StoredManifest, Fallback, Trial]]:
        """Those of `stored` (the enforced manifests) that are in a trial."""
        for name, found in list(self._held.items()):
            enforced = stored.get(name)
            trial = found.tried(enforced) if enforced is not None else None
            if enforced is not None and trial is not None:
                yield enforced, found, trial

    def spared(self, stored: Mapping[str, StoredManifest]) -> list[tuple[str, Score]]:
        """What deployments in a trial may go back to, each named before its Score."""
        if not self._held:
            return []
        return [
            (found.deployment, score)
            for _, found, _ in self.tried(stored)
            if found.good is not None
            for score in self._scores(found.good)
        ]

    def _scores(self, good: StoredManifest) -> Sequence[Score]:
        """Those of a manifest, read once; none where it can't be read."""
        if good.digest not in self._read:
            try:
                found = validate(WireManifest, parse(good.data), accepted=True).scores
            except InvalidManifest:
                found = ()
            self._read = {good.digest: found}
        return self._read[good.digest]

    async def put(self, *changed: Fallback) -> None:
        """Hold these; an empty one is forgotten. Raises Transient, and then holds what it held."""
        async with self._writing:
            held = self._held | {one.deployment: one for one in changed}
            held = {name: one for name, one in held.items() if one != Fallback(name)}
            if self._unwritten or held != self._held:
                await self._ledger.keep_fallbacks(list(held.values()))
            self._held, self._unwritten = held, False

    def begin(self, change: Callable[[Fallback], Fallback]) -> None:
        """Take each as `change` makes it, in memory alone, at the start of an agent."""
        begun = {name: change(one) for name, one in self._held.items()}
        self._unwritten = begun != self._held
        self._held = begun

    async def rebuild(self) -> None:
        """Write them after their file was taken away. Raises Transient."""
        async with self._writing:
            await self._ledger.keep_fallbacks(list(self._held.values()))
