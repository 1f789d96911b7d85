"""Runs of upgrades: planned, begun, carried on, looked at."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence

from harmony_fleet.context import Context
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device, list_devices
from harmony_fleet.rollout.runs import follow
from harmony_fleet.rollout.runs import store as kept_runs
from harmony_fleet.rollout.runs.claims import begun
from harmony_fleet.rollout.runs.plan import Request, freeze
from scores.keys import TASK_RUNS
from scores.task_run import TaskRun


class Upgrades:
    """Runs, each named by its id or how that begins. Raises InvalidInput where it isn't one alone."""

    def __init__(self, context: Context, store: Store) -> None:
        self._context = context
        self._store = store

    async def all(self) -> list[TaskRun]:
        """All runs, the newest last."""
        return await kept_runs.all_runs(self._store)

    async def get(self, name: str) -> TaskRun:
        """One run."""
        return (await kept_runs.find(self._store, name)).run

    async def watch(self, name: str) -> AsyncGenerator[TaskRun, None]:
        """A run, then each change of it, until it has ended. It is looked at, not carried on."""
        uid = (await self.get(name)).run_uid
        async with contextlib.aclosing(self._store.watch(TASK_RUNS, [uid])) as entries:
            async for entry in entries:
                seen = kept_runs.decode(entry).run
                yield seen
                if seen.phase != "Running":
                    return

    async def plan(self, devices: Sequence[str], request: Request) -> TaskRun:
        """The waves of an upgrade of these devices. Writes nothing. Raises InvalidInput, Refused."""
        known = {device.name: device for device in await list_devices(self._store)}
        chosen = [known.get(name) or Device(name, None) for name in devices]
        return freeze(request, chosen, await self.all(), await self._store.now())

    async def start(self, run: TaskRun) -> TaskRun:
        """Begin a run that `plan` made; `carry_on` does the rest. Raises Refused where another run
        has one of its devices.
        """
        return (await begun(self._store, await kept_runs.create(self._store, run))).run

    async def carry_on(
        self, name: str, show: Callable[[TaskRun], None] = lambda _run: None
    ) -> TaskRun:
        """Carry a run on to its end, wave by wave. Several may: no attempt is made twice."""
        found = await self.get(name)
        return await follow.follow(self._store, found.run_uid, self._signing, show)

    async def cancel(self, name: str) -> TaskRun:
        """Begin no further wave, and take back what no device has begun."""
        found = await self.get(name)
        if found.phase != "Running":
            return found
        made = await kept_runs.cancel_run(self._store, found.run_uid)
        return await follow.take_back(self._store, made, self._signing())

    def _signing(self) -> Signing:
        return load_signing(self._context.home)
