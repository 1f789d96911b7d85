"""Rollouts of the roster's deployments: looked at, changed, carried on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Final, Literal

from harmony_fleet.context import Context
from harmony_fleet.errors import Conflict
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.staged import begin
from harmony_fleet.rollout.staged.carry import GOING, current, follow
from harmony_fleet.rollout.staged.record import Rollout
from harmony_fleet.rollout.staged.stage import all_records, change, decode, key_of
from harmony_fleet.roster.file import RosterFile
from scores.keys import TASK_RUNS

Verb = Literal["pause", "resume", "promote", "undo"]
VERBS: Final[Mapping[Verb, begin.Changed]] = {
    "pause": begin.pause,
    "resume": begin.resume,
    "promote": begin.promote,
    "undo": begin.undo,
}
_TRIES: Final = 20


class Rollouts:
    """Each named by its deployment. Raises InvalidInput where there is none."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store

    async def all(self) -> list[Rollout]:
        """The newest rollout of each deployment, by name."""
        found = await all_records(self._store)
        return [item.rollout for item in found.values() if item.rollout is not None]

    async def get(self, deployment: str) -> Rollout:
        """The newest rollout of a deployment."""
        return await current(self._store, deployment)

    async def watch(self, deployment: str) -> AsyncGenerator[Rollout, None]:
        """A rollout, then each change of it, until it has ended or waits for a person. It is looked
        at, not carried on.
        """
        await self.get(deployment)
        keys = [key_of(deployment)]
        async with contextlib.aclosing(self._store.watch(TASK_RUNS, keys)) as entries:
            async for entry in entries:
                seen = decode(entry).rollout
                if seen is None:
                    return
                yield seen
                if seen.phase not in GOING:
                    return

    async def change(self, deployment: str, verb: Verb) -> Rollout:
        """Pause, resume, promote or undo a rollout; `carry_on` or a controller does the rest. Raises
        InvalidInput in a phase where that means nothing.
        """
        signing = load_signing(self._context.home)
        for _ in range(_TRIES):
            try:
                return await change(self._store, deployment, VERBS[verb], signing)
            except Conflict:
                continue
        raise Conflict(
            "Conflict",
            f"cannot {verb} the rollout of {deployment}: it is written all the time",
            "try again",
        )

    async def carry_on(
        self, deployment: str, show: Callable[[Rollout], None] = lambda _rollout: None
    ) -> Rollout:
        """Carry a rollout on until it ends or waits for a person. Several may: no device gets a
        generation twice.
        """
        await self.get(deployment)
        return await follow(self._store, RosterFile(self._context.home), deployment, show)
