"""Records of rollouts in ``task-runs``: read, carried on, kept by CAS; and what stood before."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from harmony_fleet.errors import Conflict, HarmonyError, InvalidInput
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.nats.bounded import gather_bounded
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import to_desired
from harmony_fleet.rollout.fleet import Fleet
from harmony_fleet.rollout.staged.advance import failed
from harmony_fleet.rollout.staged.begin import Changed
from harmony_fleet.rollout.staged.gate import (
    Formers,
    as_manifest,
    carried_on,
    content_digest,
    gated,
    staged,
)
from harmony_fleet.rollout.staged.record import Rollout, Target
from scores.canonical import NotCanonical, read
from scores.keys import DESIRED, TASK_RUNS, DeploymentKey
from scores.manifest import MAX_MANIFEST, MAX_SCORES, InvalidManifest, Manifest, validate

_PREFIX: Final = "rollout"


class Overtaken(Conflict):
    """Somebody else carried a rollout on meanwhile."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A record, and the revision at which it was read. Without a record the revision may be one
    of a removal.
    """

    rollout: Rollout | None
    revision: int


@dataclass(frozen=True, slots=True)
class Staged:
    """The fleet with what is desired for the time being, and the records that say so.

    `ungated` is the same with what the roster wants in the end.
    """

    fleet: Fleet
    ungated: Fleet
    stored: Mapping[str, Stored] = field(default_factory=dict)
    records: Mapping[str, Rollout] = field(default_factory=dict)

    def begun(self) -> list[Rollout]:
        """Those that were not there, or stood for other content."""
        return [
            record
            for name, record in self.records.items()
            if (old := self.stored.get(name)) is None
            or old.rollout is None
            or old.rollout.content != record.content
        ]


def key_of(deployment: str) -> str:
    """The key of a deployment's record."""
    return f"{_PREFIX}.{deployment}"


def decode(entry: Entry, signing: Signing = UNSIGNED) -> Stored:
    """A record of ``task-runs``. Without the home's word beside it there is none. Raises
    InvalidInput.
    """
    if entry.value is None or not signing.vouched(entry.value, entry.note):
        return Stored(None, entry.revision)
    try:
        found = validate(Rollout, read(entry.value, MAX_MANIFEST))
        problem = "" if key_of(found.deployment) == entry.key else "KeyMismatch"
    except (NotCanonical, InvalidManifest) as error:
        problem = error.code
    if problem:
        raise InvalidInput(
            "RolloutUnreadable",
            f"cannot read the rollout at {entry.key}: {problem}",
            "use a harmony of the version that wrote it",
        )
    return Stored(found, entry.revision)


async def load(store: Store, deployment: str, signing: Signing = UNSIGNED) -> Stored:
    """The record of a deployment."""
    return decode(await store.get(TASK_RUNS, key_of(deployment)), signing)


async def all_records(store: Store) -> dict[str, Stored]:
    """Every record, by deployment."""
    entries = await store.entries(TASK_RUNS, [f"{_PREFIX}.*"])
    return {key.partition(".")[2]: decode(entry) for key, entry in entries.items()}


async def stage(store: Store, fleet: Fleet, *, carry: bool = True) -> Staged:
    """The fleet as far as rollouts have come; with `carry` as far as they come by what it shows.
    Writes nothing.
    """
    names = [one.name for one in staged(fleet)]
    if not names:
        return Staged(fleet, fleet)
    found = await gather_bounded(functools.partial(load, store, signing=fleet.signing), names)
    stored = dict(zip(names, found, strict=True))
    records = {name: item.rollout for name, item in stored.items() if item.rollout is not None}
    formers = await _formers(store, records.values())
    if carry:
        records = carried_on(fleet, records, formers)
        formers = {**formers, **await _formers(store, records.values(), formers)}
    return Staged(gated(fleet, records, formers), fleet, stored, records)


def refused(made: Staged, refusals: Iterable[tuple[DeploymentKey, HarmonyError]]) -> Staged:
    """The same where writes were refused: those devices have failed."""
    records = dict(made.records)
    for key, error in refusals:
        record = records.get(key.deployment)
        if record is not None:
            told = (error.code, error.message)
            records[key.deployment] = failed(record, key.device, told, made.fleet.now)
    return replace(made, records=records)


async def keep(store: Store, made: Staged) -> None:
    """Write what changed, each by CAS. Raises Overtaken."""
    for name, record in made.records.items():
        was = made.stored[name]
        if was.rollout != record:
            await _put(store, record, was.revision, made.fleet.signing)


async def change(store: Store, deployment: str, how: Changed, signing: Signing) -> Rollout:
    """Change a record once. Raises Overtaken where somebody else wrote, InvalidInput without one."""
    stored = await load(store, deployment, signing)
    if stored.rollout is None:
        raise no_rollout(deployment)
    made = how(stored.rollout, await store.now())
    await _put(store, made, stored.revision, signing)
    return made


def no_rollout(deployment: str) -> InvalidInput:
    """The error of a deployment that was never rolled out in waves."""
    return InvalidInput(
        "NotFound",
        f"cannot find a rollout of {deployment}",
        f"the next apply makes one after: harmony fleet deployment set {deployment} --rollout canary=1",
    )


async def _put(store: Store, record: Rollout, revision: int, signing: Signing) -> None:
    value = record.canonical()
    try:
        await store.put(TASK_RUNS, key_of(record.deployment), value, revision, signing.vouch(value))
    except Conflict:
        raise Overtaken(
            "RolloutOvertaken",
            f"cannot carry the rollout of {record.deployment} on: somebody else does",
            f"see it with: harmony rollout status {record.deployment}",
        ) from None


async def _formers(
    store: Store, records: Iterable[Rollout], known: Formers | None = None
) -> dict[DeploymentKey, Manifest | None]:
    """The former content of each key that is going back, unless it is `known`."""
    wanted = [
        (DeploymentKey(target.device, record.deployment), target, record.stood(target))
        for record in records
        for target in record.targets
        if target.state == "returning"
    ]
    wanted = [item for item in wanted if item[0] not in (known or {})]
    found = await gather_bounded(functools.partial(_former, store), wanted)
    return {key: manifest for item in found if item is not None for key, manifest in [item]}


async def _former(
    store: Store, wanted: tuple[DeploymentKey, Target, str | None]
) -> tuple[DeploymentKey, Manifest | None] | None:
    """The former content of one key; None where it is gone, or isn't what the record says."""
    key, target, stood = wanted
    if not target.before:
        return key, None
    for entry in await store.history(DESIRED, str(key)):
        manifest = to_desired(entry).manifest
        if entry.revision == target.before and manifest is not None:
            if manifest.removed or content_digest(manifest) != stood:
                return None
            room = {"allow_prune": MAX_SCORES}
            return key, as_manifest(manifest).model_copy(update=room)
    return None
