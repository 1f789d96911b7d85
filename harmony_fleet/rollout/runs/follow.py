"""Carry a run on: look, decide by `advance`, write the run by CAS, and only then what follows from
it.

Whatever is written follows from the run as it stands in the bucket, and is the same whoever writes
it: a watcher that is killed, or a second one, asks for no attempt twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from harmony_fleet.errors import Conflict, HarmonyError, Refused, Unreachable
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, read_deployment, read_device
from harmony_fleet.rollout.fleet_plan import removal_done
from harmony_fleet.rollout.plan import ApplyRequest, plan
from harmony_fleet.rollout.runs.advance import ACTIVE, ENDED, Evidence, advance
from harmony_fleet.rollout.runs.plan import manifest_of
from harmony_fleet.rollout.runs.store import StoredRun, load, update
from scores.keys import DESIRED, DeploymentKey
from scores.manifest import Manifest
from scores.task_run import TaskRun, TaskTarget

LOOK_SECONDS: Final = 1.0
TIDY_SECONDS: Final = 60.0
"""Seconds that the end of a run waits for devices to release their attempts."""
LOST_SECONDS: Final = 120.0
_NEVER_BEGAN: Final = frozenset({"EarlierWaveFailed", "Cancelled"})

Show = Callable[[TaskRun], None]
Keys = Callable[[], Signing]
"""Looks the signing keys up; at each step, so that several watchers of one home sign alike while
keys come and go.
"""


async def follow(store: Store, run_uid: str, keys: Keys, show: Show = lambda _run: None) -> TaskRun:
    """Until the run ended, and what it left at devices that answer is taken off. Raises
    Unreachable, InvalidInput.
    """
    lost: float | None = None
    while True:
        try:
            run, tidy = await step(store, run_uid, keys())
        except Conflict:
            continue
        except Unreachable:
            lost = lost or time.monotonic()
            if time.monotonic() - lost > LOST_SECONDS:
                raise
        else:
            lost = None
            show(run)
            if run.phase != "Running":
                await _tidy_up(store, run, keys, done=tidy)
                return run
        await asyncio.sleep(LOOK_SECONDS)


async def step(store: Store, run_uid: str, signing: Signing) -> tuple[TaskRun, bool]:
    """One look and what follows; the run, and whether nothing of it is left in
    ``desired-state``.
    """
    stored = await load(store, run_uid)
    known = await _evidence(store, stored.run)
    stored = await update(store, stored, advance(stored.run, known, await store.now()))
    stored = await _request(store, stored, signing)
    return stored.run, await tidy(store, stored.run, signing)


async def _evidence(store: Store, run: TaskRun) -> dict[str, Evidence]:
    async def one(target: TaskTarget) -> tuple[str, Evidence]:
        found, device = await asyncio.gather(
            read_deployment(store, DeploymentKey(target.device, run.deployment)),
            read_device(store, target.device),
        )
        return target.device, Evidence(found.actual.status, found.actual.created, device.heard)

    return dict(
        await gather_bounded(one, [target for target in run.targets if target.state in ACTIVE])
    )


async def _request(store: Store, stored: StoredRun, signing: Signing) -> StoredRun:
    """Have each requested attempt's manifest desired. What can't be is told to the run."""

    async def one(target: TaskTarget) -> tuple[str, Evidence]:
        refused = await _write(
            store, stored.run, target.device, manifest_of(stored.run, target), signing
        )
        return target.device, Evidence(refused=refused)

    wanted = [target for target in stored.run.targets if target.state == "requested"]
    refused = {name: seen for name, seen in await gather_bounded(one, wanted) if seen.refused}
    return (
        await update(store, stored, advance(stored.run, refused, await store.now()))
        if refused
        else stored
    )


async def _write(
    store: Store, run: TaskRun, name: str, manifest: Manifest, signing: Signing
) -> str:
    """Write it unless it stands; why it can't be, as a code. Who was faster wrote the same.

    A device isn't to blame where this watcher has no signing key: that is raised, and one who has
    goes on.
    """
    found, device = await asyncio.gather(
        read_deployment(store, DeploymentKey(name, run.deployment)), read_device(store, name)
    )
    try:
        made = plan(ApplyRequest(manifest, run.lineage, signing=signing), found, device)
        if made.action != "unchanged":
            await store.put(DESIRED, str(found.key), made.wire.canonical(), made.revision)
    except Unreachable:
        raise
    except Refused as error:
        if error.code == "SignatureMissing":
            raise
        return error.code
    except HarmonyError as error:
        return "" if error.code == "Conflict" else error.code
    return ""


async def tidy(store: Store, run: TaskRun, signing: Signing) -> bool:
    """Take ended attempts off their devices, and purge the keys of those that are; whether nothing
    is left.
    """

    async def one(target: TaskTarget) -> bool:
        found = await read_deployment(store, DeploymentKey(target.device, run.deployment))
        standing = found.desired.manifest
        if standing is None:
            return True
        if not standing.removed or (signing.problem(standing) and not removal_done(found)):
            await _write(
                store,
                run,
                target.device,
                Manifest(deployment=run.deployment, removed=True),
                signing,
            )
            return False
        return await _purged(store, found)

    ended = [
        target
        for target in run.targets
        if target.state in ENDED and target.reason not in _NEVER_BEGAN
    ]
    return all(await gather_bounded(one, ended))


async def _purged(store: Store, found: Deployment) -> bool:
    if not removal_done(found):
        return False
    try:
        await store.purge(DESIRED, str(found.key), found.desired.revision)
    except Conflict:
        return False
    return True


async def _tidy_up(store: Store, run: TaskRun, keys: Keys, *, done: bool) -> None:
    """Go on for a while. A device that is away lets go when it is back; `harmony fleet controller`
    then purges.
    """
    until = time.monotonic() + TIDY_SECONDS
    while not done and time.monotonic() < until:
        await asyncio.sleep(LOOK_SECONDS)
        try:
            done = await tidy(store, run, keys()) or not await _answering(store, run)
        except Unreachable:
            return


async def _answering(store: Store, run: TaskRun) -> bool:
    """Return whether any device with something left to let go of is heard."""

    async def one(target: TaskTarget) -> bool:
        found, device = await asyncio.gather(
            read_deployment(store, DeploymentKey(target.device, run.deployment)),
            read_device(store, target.device),
        )
        return found.desired.manifest is not None and not device.silent(now)

    now = await store.now()
    return any(await gather_bounded(one, run.targets))
