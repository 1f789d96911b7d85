"""Carry a run on: read it, decide by `advance`, write the run by CAS, and only then act on it.

Each write follows from the run as it stands in the bucket, so every watcher writes the same. A
watcher that is killed, or a second one, asks for no attempt twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from harmony_fleet.errors import Conflict, HarmonyError, Refused, Unreachable
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import Deployment, Device
from harmony_fleet.rollout.fleet_plan import removal_done
from harmony_fleet.rollout.plan import ApplyRequest, plan
from harmony_fleet.rollout.runs.advance import ENDED, Evidence, advance
from harmony_fleet.rollout.runs.claims import begin
from harmony_fleet.rollout.runs.plan import manifest_of
from harmony_fleet.rollout.runs.site import Site, look
from harmony_fleet.rollout.runs.store import StoredRun, load, update
from scores.keys import DESIRED, TASK_RUNS
from scores.manifest import Manifest
from scores.task_run import TaskRun, TaskTarget

LOOK_SECONDS: Final = 1.0
TIDY_SECONDS: Final = 60.0
"""Seconds that the end of a run waits for devices to release their attempts."""
LOST_SECONDS: Final = 120.0
_NEVER_BEGAN: Final = frozenset({"EarlierWaveFailed", "Cancelled", "RunActive"})
_TRIES: Final = 20
_AT_ONCE: Final = 128
"""Requests between two looks at whether the run still is what it was."""

Show = Callable[[TaskRun], None]
Keys = Callable[[], Signing]
"""Look the signing keys up. Done at each step: watchers of one home then sign alike, whatever keys come
and go.
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
    if not stored.run.begun and stored.run.phase == "Running":
        stored = await begin(store, stored)
    site = await look(store, stored.run)
    stored = await update(store, stored, advance(stored.run, site.known, site.now))
    stored = await _request(store, stored, site, signing)
    return stored.run, await tidy(store, stored.run, signing)


async def take_back(store: Store, run: TaskRun, signing: Signing) -> TaskRun:
    """One step of a run that was cancelled, whoever else carries it on. Raises Conflict where that
    never succeeds.
    """
    for _ in range(_TRIES):
        try:
            return (await step(store, run.run_uid, signing))[0]
        except Conflict:
            continue
    raise Conflict(
        "Conflict",
        "cannot take back what was asked for: the run is written all the time",
        "carry it on with: harmony upgrade watch",
    )


async def _request(store: Store, stored: StoredRun, site: Site, signing: Signing) -> StoredRun:
    """Desire each requested attempt's manifest. The run is told about those that can't be desired."""
    if stored.run.cancelled:
        return stored
    wanted = [
        target
        for target in stored.run.targets
        if target.state == "requested" and not _stands(site, target, signing)
    ]
    devices = await site.devices(store, [target.device for target in wanted])
    refused: dict[str, Evidence] = {}

    async def one(target: TaskTarget) -> None:
        made = manifest_of(stored.run, target)
        request = ApplyRequest(made, stored.run.lineage, signing=signing)
        found = site.deployments[target.device]
        code = await _write(store, request, found, devices[target.device])
        if code:
            refused[target.device] = replace(site.known[target.device], refused=code)

    for first in range(0, len(wanted), _AT_ONCE):
        if first:
            await _check_still(store, stored)
        await gather_bounded(one, wanted[first : first + _AT_ONCE])
    if not refused:
        return stored
    return await update(store, stored, advance(stored.run, {**site.known, **refused}, site.now))


async def _check_still(store: Store, stored: StoredRun) -> None:
    """Raise Conflict where the run isn't what it was: it may be cancelled by now."""
    if (await store.get(TASK_RUNS, stored.run.run_uid)).revision != stored.revision:
        raise Conflict("Conflict", "cannot go on: somebody else carries the run on", "look again")


def _stands(site: Site, target: TaskTarget, signing: Signing) -> bool:
    """Return whether the attempt is desired already."""
    standing = site.deployments[target.device].desired.manifest
    return standing is not None and not standing.removed and not signing.problem(standing)


async def _write(store: Store, request: ApplyRequest, found: Deployment, device: Device) -> str:
    """Write it unless it stands; why it can't be, as a code.

    A device isn't to blame where this watcher has no signing key: that is raised, and one who has
    goes on. A request is never written over its own removal, nor over the mark of its purge: a
    watcher that was held up would ask for what was taken back meanwhile.
    """
    standing = found.desired.manifest
    if standing is not None and standing.removed and not request.manifest.removed:
        return ""
    try:
        made = plan(request, found, device)
        key, value = str(found.key), made.wire.canonical()
        if made.action != "unchanged" and made.revision:
            await store.put(DESIRED, key, value, made.revision)
        elif made.action != "unchanged":
            await store.create(DESIRED, key, value)
    except Unreachable:
        raise
    except Refused as error:
        if error.code == "SignatureMissing":
            raise
        return error.code
    except HarmonyError as error:
        return "" if error.code == "Conflict" else error.code  # others wrote it or took it back
    return ""


async def tidy(store: Store, run: TaskRun, signing: Signing) -> bool:
    """Take ended attempts off their devices, and purge the keys of those that are; whether nothing
    is left. Of a cancelled run, take back what was asked for.
    """
    targets = [target for target in run.targets if _is_over(run, target)]
    if not targets:
        return True
    site = await look(store, run)
    removal = Manifest(deployment=run.deployment, removed=True)
    request = ApplyRequest(removal, run.lineage, signing=signing)

    async def one(target: TaskTarget) -> bool:
        found = site.deployments[target.device]
        standing = found.desired.manifest
        if standing is None:
            return True
        if not standing.removed or (signing.problem(standing) and not removal_done(found)):
            device = (await site.devices(store, [target.device]))[target.device]
            await _write(store, request, found, device)
            return False
        return target.state in ENDED and await _purged(store, found)

    return all(await gather_bounded(one, targets))


def _is_over(run: TaskRun, target: TaskTarget) -> bool:
    """Return whether nothing of the target is to be desired any more."""
    if target.state in ENDED:
        return target.reason not in _NEVER_BEGAN
    return run.cancelled and target.state == "requested"


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
    site = await look(store, run)
    return any(
        found.desired.manifest is not None and not site.known[name].silent(site.now)
        for name, found in site.deployments.items()
    )
