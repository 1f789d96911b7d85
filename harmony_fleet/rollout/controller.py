"""`harmony fleet controller`: keeps projections reconciled, carries runs on, begins scheduled ones.
Runs until ended.

Holds nothing: what it does follows from the roster and the buckets each time, so it may be killed,
and run twice.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from harmony_fleet.errors import Conflict, HarmonyError, disk_failed
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Device, list_devices
from harmony_fleet.rollout.apply import Run
from harmony_fleet.rollout.copies import admit
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.runs import store as kept_runs
from harmony_fleet.rollout.runs.follow import step, tidy
from harmony_fleet.rollout.runs.plan import due, freeze, request
from harmony_fleet.rollout.runs.sightings import first_seen
from harmony_fleet.rollout.staged import carry
from harmony_fleet.rollout.staged.stage import Overtaken, all_records
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import Behind
from harmony_fleet.roster.model import Roster, Schedule
from scores.keys import TASK_RUNS

RUN_SECONDS: Final = 2.0
_LOCK_SECONDS: Final = 5.0
_TOLD: Final = 20
_PASSING: Final = frozenset({"RosterOvertaken"})
"""The next look says which of the two is behind."""

Say = Callable[[str], None]


class Controller:
    """One controller of one roster. `say` hears what it does and what it can't."""

    def __init__(self, store: Store, file: RosterFile, say: Say, replicas: int = 1) -> None:
        self._store = store
        self._file = file
        self._say = say
        self._replicas = replicas
        self._said: dict[str, str] = {}
        self._made: tuple[Sequence[Schedule] | None, dict[str, datetime]] = (None, {})

    async def run(self, seconds: float) -> None:
        """Reconcile each `seconds`, carry runs on in between, until cancelled.

        Raises Behind where another copy of this home was applied: two controllers would undo each
        other's work.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._every(seconds, "reconcile", self.reconcile))
                tasks.create_task(self._every(RUN_SECONDS, "carry runs on", self.runs))
                tasks.create_task(self._every(RUN_SECONDS, "carry rollouts on", self.rollouts))
        except BaseExceptionGroup as group:
            behind = next((error for error in group.exceptions if isinstance(error, Behind)), None)
            if behind is None:
                raise
            raise behind from None

    async def _every(self, seconds: float, what: str, work: Callable[[], Awaitable[None]]) -> None:
        """An error is said once, and the work is done again."""
        while True:
            try:
                await work()
                self._tell(what, "")
            except OSError as failed:
                error = disk_failed(failed)
                if error is None:
                    raise
                self._tell(what, f"cannot {what}, and waits: {error.code}: {error.message}")
            except HarmonyError as error:
                if isinstance(error, Behind) and error.code not in _PASSING:
                    raise
                details = "; ".join(error.details)
                self._tell(
                    what,
                    f"cannot {what}: {error.code}: {error.message}{': ' if details else ''}{details}",
                )
            await asyncio.sleep(seconds)

    def _tell(self, what: str, words: str) -> None:
        if words and self._said.get(what) != words:
            self._say(words)
        self._said[what] = words

    async def reconcile(self) -> None:
        """Once: write what differs unless a refusal stops it, purge removed keys, take ended
        attempts off.
        """
        under_way = Run()
        how = carry.How(replicas=self._replicas, lock_seconds=_LOCK_SECONDS)
        done = await carry.apply_once(self._store, self._file, how, under_way)
        made = done.plan
        alone = [f"{key.device}: {error.code}: {error.message}" for key, error in made.refusals]
        self._tell(
            "devices",
            f"passed over, and the others go on: {'; '.join(alone[:_TOLD])}" if alone else "",
        )
        written = [result for result in under_way.results if result.written]
        if written or made.purges:
            self._say(
                f"roster generation {made.generation}: {len(written)} written, {len(made.purges)} purged"
            )
        for record in done.staged.begun():
            self._say(f"rollout of {record.deployment} begun, {len(record.targets)} devices")
        await self._tidy(done.fleet)

    async def _tidy(self, fleet: Fleet) -> None:
        """Runs that ended while a device was away."""
        left = {
            key.deployment
            for key, found in fleet.deployments.items()
            if found.desired.manifest is not None
        }
        for run in await kept_runs.all_runs(self._store):
            if run.phase != "Running" and run.deployment in left:
                await tidy(self._store, run, fleet.signing)

    async def rollouts(self) -> None:
        """Once: carry each rollout on by a step."""
        for name, stored in (await all_records(self._store)).items():
            if stored.rollout is None or stored.rollout.phase not in carry.GOING:
                continue
            with contextlib.suppress(Overtaken):  # somebody else carries it on as well
                after = await carry.step(self._store, self._file, name, self._replicas)
                if after.phase not in carry.GOING:
                    told = f"rollout of {name}: {after.phase} {after.reason}".rstrip()
                    self._say(told)

    async def runs(self) -> None:
        """Once: begin what is due, and carry each run on by a step."""
        roster = self._file.read()
        await admit(self._store, self._file, roster)
        await self._begin(roster)
        signing = load_signing(self._file.folder.parent)
        for run in await kept_runs.all_runs(self._store):
            if run.phase == "Running":
                try:
                    after, _ = await step(self._store, run.run_uid, signing)
                except Conflict:
                    continue  # somebody else carries it on as well
                if after.phase != "Running":
                    self._say(f"run {run.run_uid[:8]} ended: {after.phase} {after.reason}".rstrip())

    async def _begin(self, roster: Roster) -> None:
        if self._made[0] != roster.schedules:
            try:
                self._made = roster.schedules, await first_seen(self._store, roster.schedules)
            except Conflict:
                return  # another controller writes the same
        if not any(schedule.enabled for schedule in roster.schedules):
            return
        now = await self._store.now()
        for schedule in roster.schedules:
            at = due(schedule, now, self._made[1][schedule.name])
            if at is None:
                continue
            asked = request(schedule, roster.lineage, at)
            if (await self._store.get(TASK_RUNS, asked.run_uid)).revision:
                continue
            try:
                devices = {device.name: device for device in await list_devices(self._store)}
                chosen = [
                    devices.get(item.name) or Device(item.name, None)
                    for item in roster.picked(schedule.select)
                ]
                made = freeze(asked, chosen, await kept_runs.all_runs(self._store), now)
                await kept_runs.create(self._store, made)
            except Conflict:
                continue  # another controller was faster
            except HarmonyError as error:
                self._tell(
                    schedule.name, f"cannot begin {schedule.name}: {error.code}: {error.message}"
                )
                continue
            self._say(
                f"run {made.run_uid[:8]} begun by schedule {schedule.name}, {len(made.targets)} devices"
            )
