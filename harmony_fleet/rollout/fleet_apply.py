"""Read the fleet, and make it so: the I/O behind `harmony fleet plan`, `apply` and `reconciler`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harmony_fleet.errors import HarmonyError, InvalidInput
from harmony_fleet.manifests.signing_keys import load as load_signing
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import list_deployments, list_devices
from harmony_fleet.rollout.apply import (
    Result,
    Run,
    check_allowed,
    measured,
    purge,
    wait_all,
    write_all,
)
from harmony_fleet.rollout.finding import Finding
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.fleet_plan import FleetPlan, check_refusals
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.projection import project
from harmony_fleet.roster.sources import load_sources
from scores.keys import DESIRED, DeploymentKey, command_subject

_RESYNC_SECONDS: Final = 5.0
_MENDED_THERE: Final = frozenset({"missing", "unexpected", "disabled-running", "not-converged"})


@contextlib.contextmanager
def collecting_later() -> Iterator[None]:
    """A large fleet is millions of objects and hardly a cycle: the collector would walk them all,
    many times over.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


async def read_fleet(store: Store, roster: Roster, folder: Path, only: str | None = None) -> Fleet:
    """The roster's projections and everything that the buckets hold; with `only`, of one
    deployment.
    """
    chosen = [one for one in roster.deployments if only in (None, one.name)]
    sources = load_sources(roster.model_copy(update={"deployments": chosen}), folder)
    projections = project(roster, sources.scores)
    deployments, devices = await asyncio.gather(
        list_deployments(store, None, only), list_devices(store)
    )
    return Fleet(
        roster,
        projections,
        {found.key: found for found in deployments},
        {device.name: device for device in devices},
        await server_time(store),
        load_signing(folder.parent),
        sources.changed,
    )


async def server_time(store: Store) -> datetime:
    """The server's time; without buckets nothing has an age, and any time will do."""
    try:
        return await store.now()
    except InvalidInput:
        return datetime.now(UTC)


async def refused_by_server(
    store: Store, made: FleetPlan
) -> list[tuple[DeploymentKey, HarmonyError]]:
    """List what the server wouldn't take of a plan: too large, or not with these credentials. Writes
    nothing.
    """
    results = measured(store, made.plans)
    await check_allowed(store, results)
    wires = ((result.plan.wire, result.error) for result in results)
    return [
        (DeploymentKey(wire.device, wire.deployment), error)
        for wire, error in wires
        if error is not None
    ]


async def write_fleet(store: Store, made: FleetPlan, run: Run) -> None:
    """Write all plans and purge the removed keys. The results are in `run`. Refusals raise before
    the first write.
    """
    check_refusals(made)
    run.results = [Result(item) for item in made.plans]
    await write_all(store, run)

    async def one(purge: tuple[DeploymentKey, int]) -> HarmonyError | None:
        try:
            await store.purge(DESIRED, str(purge[0]), purge[1])
        except HarmonyError as error:
            return error
        return None

    for error in filter(None, await gather_bounded(one, made.purges)):
        raise error


async def settle(store: Store, run: Run, seconds: float, rolled: Collection[str] = ()) -> None:
    """Wait for the devices; then purge the keys of what they removed. Who waits for the deployments
    `rolled` follows their rollouts.
    """
    results = [item for item in run.results if item.plan.wire.deployment not in rolled]
    run.show.waiting(results)
    await wait_all(store, Run(run.show, results), seconds)
    for result in results:
        if (
            result.plan.wire.removed
            and result.verdict is not None
            and result.verdict.phase == "Removed"
        ):
            await purge(store, result)


async def resync(store: Store, findings: Iterable[Finding]) -> None:
    """Have the agents look at once where something doesn't run as it should; one that is silent
    looks later.
    """
    names = sorted({finding.device for finding in findings if finding.code in _MENDED_THERE})

    async def one(name: str) -> None:
        await store.ask(command_subject(name, "resync"), b"", _RESYNC_SECONDS)

    await gather_bounded(one, names)


def unwritten(results: Sequence[Result]) -> list[Result]:
    """List the results that should be written and aren't."""
    return [result for result in results if result.error is not None]
