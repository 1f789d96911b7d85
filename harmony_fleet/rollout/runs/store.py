"""Runs in ``task-runs``: read, listed, written by CAS. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harmony_fleet.errors import Conflict, InvalidInput
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.runs.advance import cancel
from scores.canonical import NotCanonical, read
from scores.keys import TASK_RUNS
from scores.manifest import MAX_MANIFEST, InvalidManifest, validate
from scores.task_run import TaskRun

_TRIES: Final = 20
_RUNS: Final = ("*",)
"""Keys of runs; those of `claims` have two tokens."""


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run, and the revision at which it was read."""

    run: TaskRun
    revision: int


def decode(entry: Entry) -> StoredRun:
    """A value of ``task-runs``. Raises InvalidInput."""
    try:
        run = validate(TaskRun, read(entry.value or b"", MAX_MANIFEST))
        problem = "" if run.run_uid == entry.key else "KeyMismatch"
    except (NotCanonical, InvalidManifest) as error:
        problem = error.code
    if problem:
        raise InvalidInput(
            "RunUnreadable",
            f"cannot read the run {entry.key}: {problem}",
            "use a harmony of the version that wrote it",
        )
    return StoredRun(run, entry.revision)


async def load(store: Store, run_uid: str) -> StoredRun:
    """Read one run. Raises InvalidInput if there is none."""
    entry = await store.get(TASK_RUNS, run_uid)
    if entry.value is None:
        raise _unknown(run_uid)
    return decode(entry)


async def find(store: Store, name: str) -> StoredRun:
    """The run whose id begins with `name`. Raises InvalidInput where none, or more than one,
    does.
    """
    found = [
        entry
        for key, entry in (await store.entries(TASK_RUNS, _RUNS)).items()
        if key.startswith(name)
    ]
    if not name or not found:
        raise _unknown(name)
    if len(found) > 1:
        raise InvalidInput(
            "RunAmbiguous",
            f"cannot choose a run: {len(found)} begin with {name}",
            "write more of it",
        )
    return decode(found[0])


def _unknown(name: str) -> InvalidInput:
    return InvalidInput(
        "NotFound", f"cannot find a run {name}", "see them with: harmony upgrade list"
    )


async def all_runs(store: Store) -> list[TaskRun]:
    """Every run that can be read, the newest last."""
    runs = []
    for entry in (await store.entries(TASK_RUNS, _RUNS)).values():
        try:
            runs.append(decode(entry).run)
        except InvalidInput:
            continue
    return sorted(runs, key=lambda run: (run.created_at, run.run_uid))


async def create(store: Store, run: TaskRun) -> StoredRun:
    """Write a new run. Raises Conflict if it exists."""
    return StoredRun(run, await store.put(TASK_RUNS, run.run_uid, run.canonical(), 0))


async def update(store: Store, stored: StoredRun, run: TaskRun) -> StoredRun:
    """Write the next state unless somebody else did. Raises Conflict."""
    if run == stored.run:
        return stored
    return StoredRun(run, await store.put(TASK_RUNS, run.run_uid, run.canonical(), stored.revision))


async def cancel_run(store: Store, run_uid: str) -> TaskRun:
    """Cancel, against any watcher that carries it on. Raises Conflict if that never succeeds."""
    for _ in range(_TRIES):
        stored = await load(store, run_uid)
        try:
            return (await update(store, stored, cancel(stored.run))).run
        except Conflict:
            continue
    raise Conflict("Conflict", "cannot cancel the run: it is written all the time", "try again")
