"""One run for each device: the key ``device.<name>`` of ``task-runs`` names the run that has the
device, written by CAS.

A run is written first, and begins once all its devices are its own. Of two that want one device the
one that has begun keeps it; where neither has, the older ends the younger by CAS and takes it. So
one of them begins, and never both, whoever is killed in between.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_fleet.errors import Conflict, InvalidInput, Refused
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.runs.advance import give_up
from harmony_fleet.rollout.runs.plan import run_active
from harmony_fleet.rollout.runs.store import StoredRun, load, update
from scores.canonical import NotCanonical, canonical, read
from scores.keys import TASK_RUNS
from scores.task_run import TaskRun

_LARGEST = 1024


async def begin(store: Store, stored: StoredRun) -> StoredRun:
    """Take the run's devices, and begin it; ended where another run has one of them.

    Raises Conflict where somebody wrote meanwhile: look again.
    """
    run = stored.run
    held = await store.entries(TASK_RUNS, ["device.*"])
    wanted = {
        f"device.{target.device}": held.get(f"device.{target.device}") for target in run.targets
    }
    for rival in await _rivals(store, run, wanted):
        if rival.run.begun or _age(rival.run) < _age(run):
            return await update(store, stored, give_up(run))
        await update(store, rival, give_up(rival.run))

    async def take(key: str) -> None:
        await _take(store, key, wanted[key], run.run_uid)

    await gather_bounded(
        take, [key for key, entry in wanted.items() if _named(entry) != run.run_uid]
    )
    return await update(store, stored, run.model_copy(update={"begun": True}))


async def begun(store: Store, stored: StoredRun) -> StoredRun:
    """The run, begun. Raises Refused where another run was faster; then nothing is left of it."""
    while not stored.run.begun and stored.run.phase == "Running":
        try:
            stored = await begin(store, stored)
        except Conflict:
            stored = await load(store, stored.run.run_uid)
    if stored.run.begun:
        return stored
    held = await store.entries(TASK_RUNS, ["device.*"])
    mine = {
        f"device.{target.device}": held.get(f"device.{target.device}")
        for target in stored.run.targets
    }
    rivals = await _rivals(store, stored.run, mine)
    await store.purge(TASK_RUNS, stored.run.run_uid, stored.revision)
    raise _lost(stored.run, rivals)


def _lost(run: TaskRun, rivals: list[StoredRun]) -> Refused:
    names = {target.device for target in run.targets}
    for rival in rivals:
        busy = sorted(names & {target.device for target in rival.run.targets})
        if busy:
            return run_active(rival.run, busy[0])
    return run_active(run, sorted(names)[0])


async def _rivals(
    store: Store, run: TaskRun, wanted: Mapping[str, Entry | None]
) -> list[StoredRun]:
    """The other runs that haven't ended and have one of the devices."""
    found = []
    for uid in sorted({_named(entry) for entry in wanted.values()} - {"", run.run_uid}):
        try:
            stored = await load(store, uid)
        except InvalidInput:
            continue  # it was taken away
        if stored.run.phase == "Running":
            found.append(stored)
    return found


async def _take(store: Store, key: str, held: Entry | None, run_uid: str) -> None:
    value = canonical({"run_uid": run_uid})
    try:
        await store.put(TASK_RUNS, key, value, held.revision if held is not None else 0)
    except Conflict:
        marker = await store.get(TASK_RUNS, key)
        if held is not None or marker.value is not None:
            raise
        await store.put(TASK_RUNS, key, value, marker.revision)


def _named(entry: Entry | None) -> str:
    """The run that a claim names; empty where it can't be read."""
    try:
        value = read(entry.value or b"", _LARGEST) if entry is not None else None
    except NotCanonical:
        return ""
    return str(value.get("run_uid", "")) if isinstance(value, dict) else ""


def _age(run: TaskRun) -> tuple[str, str]:
    return run.created_at, run.run_uid
