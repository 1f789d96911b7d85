"""Carry the roster out by one step: read, decide, keep the records of rollouts, and only then write.

Each write follows from the records as they stand in the bucket, so every command and controller
writes the same. One that is killed, or a second one, gives no device a generation twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from harmony_fleet.errors import Conflict, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.apply import Refusal, Run
from harmony_fleet.rollout.copies import admit, claim, confirm
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.fleet_apply import read_fleet, write_fleet
from harmony_fleet.rollout.fleet_plan import FleetPlan, Scope, check_refusals, plan_fleet
from harmony_fleet.rollout.staged.record import Rollout
from harmony_fleet.rollout.staged.stage import (
    Overtaken,
    Staged,
    keep,
    load,
    no_rollout,
    refused,
    stage,
)
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.mark import Behind
from harmony_fleet.roster.model import Roster
from harmony_fleet.storage.lock import LOCK_SECONDS

LOOK_SECONDS: Final = 1.0
LOST_SECONDS: Final = 120.0
_TRIES: Final = 5
GOING: Final = frozenset({"Running", "RollingBack"})
"""Phases that a step may change."""


@dataclass(frozen=True, slots=True)
class How:
    """Options of a step.

    `only`: of one deployment. `check` may refuse the plan before anything is written.
    """

    scope: Scope = field(default_factory=Scope)
    only: str | None = None
    replicas: int = 1
    lock_seconds: float = LOCK_SECONDS
    check: Callable[[FleetPlan], None] = lambda _made: None


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of a step: what it read, planned and kept."""

    fleet: Fleet
    plan: FleetPlan
    staged: Staged


async def read_staged(store: Store, roster: Roster, file: RosterFile) -> Fleet:
    """The fleet with what is to stand as far as rollouts have come."""
    return (await stage(store, await read_fleet(store, roster, file.folder), carry=False)).fleet


async def plan_step(store: Store, roster: Roster, file: RosterFile, how: How) -> Applied:
    """Plan a step. Writes nothing.

    An apply that names devices goes round rollouts: whoever names them has said what is meant.
    """
    fleet = await read_fleet(store, roster, file.folder, how.only)
    staged = Staged(fleet, fleet) if how.scope.devices else await stage(store, fleet)
    made = plan_fleet(staged.fleet, _with_returns(how.scope, staged))
    return Applied(staged.fleet, made, staged)


def _with_returns(scope: Scope, staged: Staged) -> Scope:
    """Allow what goes back to nothing to go, however many devices lose it."""
    going = sum(
        target.state == "returning" and not target.before
        for record in staged.records.values()
        for target in record.targets
    )
    return replace(scope, allow_removals=max(going, scope.allow_removals or 0)) if going else scope


async def apply_once(store: Store, file: RosterFile, how: How, run: Run) -> Applied:
    """One step, under the roster's lock. The results are in `run`. Refusals raise before the first
    write. Where somebody else carried a rollout on meanwhile, it is read and decided again.
    """
    for _ in range(_TRIES):
        with contextlib.suppress(Overtaken):
            return await _apply(store, file, how, run)
    return await _apply(store, file, how, run)


async def _apply(store: Store, file: RosterFile, how: How, run: Run) -> Applied:
    with file.locked(how.lock_seconds) as roster:
        standing = await admit(store, file, roster, any_keys=how.scope.take_over)
        done = await plan_step(store, roster, file, how)
        how.check(done.plan)
        check_refusals(done.plan)
        await store.ensure_buckets(how.replicas)
        run.refused = [Refusal(*item) for item in done.plan.refusals]
        revision = await claim(store, file, roster, standing)
        done = replace(done, staged=refused(done.staged, done.plan.refusals))
        await keep(store, done.staged)
        await write_fleet(store, done.plan, run)
        await confirm(store, roster.lineage, revision)
    return done


async def step(store: Store, file: RosterFile, deployment: str, replicas: int = 1) -> Rollout:
    """Carry one deployment's rollout on by a step. Raises Conflict where somebody else does."""
    run = Run()
    done = await apply_once(store, file, How(only=deployment, replicas=replicas), run)
    if lost := [result.error for result in run.results if result.error is not None]:
        raise lost[0]
    return done.staged.records.get(deployment) or await current(store, deployment)


async def current(store: Store, deployment: str) -> Rollout:
    """The record of a deployment. Raises InvalidInput where there is none."""
    found = (await load(store, deployment)).rollout
    if found is None:
        raise no_rollout(deployment)
    return found


async def follow(
    store: Store, file: RosterFile, deployment: str, show: Callable[[Rollout], None]
) -> Rollout:
    """Carry a rollout on until it ends or waits for a person. Raises Unreachable, InvalidInput."""
    lost: float | None = None
    while True:
        try:
            found = await step(store, file, deployment)
        except Conflict as error:
            if isinstance(error, Behind):
                raise
        except Unreachable:
            lost = lost or time.monotonic()
            if time.monotonic() - lost > LOST_SECONDS:
                raise
        else:
            lost = None
            show(found)
            if found.phase not in GOING:
                return found
        await asyncio.sleep(LOOK_SECONDS)
