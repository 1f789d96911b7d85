"""The kind File: what stands at a path is as its Score says, and what stood there before comes back where it was kept.

It looks and acts through the capability Files alone; what to do is decided in plan, what is ours in places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, assert_never

from harmony_agent.core.errors import Terminal
from harmony_agent.core.paths import Places, below
from harmony_agent.core.reconcile import Converged, Desired, Facts, Plan, Record, Store
from harmony_agent.kinds.file import places as ledger
from harmony_agent.kinds.file.places import Former, Place, copy_name
from harmony_agent.kinds.file.plan import (
    Amend,
    Drop,
    FileAction,
    FileState,
    Keep,
    MakeParents,
    Owned,
    Put,
    Release,
    Sweep,
    Wanted,
    plan_removal,
    plan_wanted,
)
from harmony_agent.topology import Objects
from harmony_agent.topology.files import TEMP_PREFIX, TEMP_SUFFIX, Attributes, Files, Node, SeenType, Sight, Spot, Write
from scores.canonical import digest as digest_of
from scores.file import MAX_OBJECT, File, ObjectRef
from scores.manifest import FieldError
from scores.status import FileDetail

_SETUID: Final = 0o6000
_STATES: Final[Mapping[SeenType, Literal["PresentAt", "Directory", "Symlink"]]] = {
    "file": "PresentAt",
    "other": "PresentAt",
    "directory": "Directory",
    "symlink": "Symlink",
}


@dataclass(frozen=True, slots=True)
class _Survey:
    """Where to look for a name, as long as what is wanted and owned of it stays the same."""

    desired: Desired[File] | None
    record: Record | None
    spots: tuple[Spot, ...]
    owned: Owned


class FileReconciler:
    """Implements `core.reconcile.Reconciler`.

    `roots` are the directories below which a File may be; nothing may be at, in or above one of `forbidden` (what
    is the agent's own, and where its power comes from).
    """

    kind = "File"
    spec_type = File

    def __init__(
        self,
        files: Files,
        store: Store,
        objects: Objects,
        *,
        roots: Sequence[str],
        forbidden: Sequence[str] = (),
        allow_setuid: bool = False,
    ) -> None:
        self._files = files
        self._store = store
        self._objects = objects
        self._roots = tuple(root.rstrip("/") for root in roots)
        self._forbidden = Places(forbidden)
        self._allow_setuid = allow_setuid
        self._surveys: dict[str, _Survey] = {}
        self._seen: dict[str, tuple[tuple[Spot, ...], FileState]] = {}
        """by name: where it was looked at last, and what was seen"""
        self._stirred: set[str] = set()
        """of these there was an event since their last look began"""
        self._listed: tuple[Collection[str] | None, Sequence[_Survey], Sequence[Spot]] = (None, (), ())
        self._states: dict[str, FileState] = {}
        self._digests: dict[str, tuple[str, str]] = {}
        self._names: dict[str, set[str]] = {}
        self._makers: dict[str, set[str]] = {}
        self._unclaimed: set[str] = set()

    def admit(self, spec: File) -> Iterable[FieldError]:
        """A path outside the roots or too near to the agent itself, and setuid bits."""
        path = spec.path
        if not any(path.startswith(root + "/") for root in self._roots):
            yield FieldError("path", "PathOutsideRoots")
        elif self._forbidden.touched_by(path) or _looks_temporary(path):
            yield FieldError("path", "PathForbidden")
        if spec.mode is not None and int(spec.mode, 8) & _SETUID and not self._allow_setuid:
            yield FieldError("mode", "SetuidRefused")

    def claims(self, spec: File) -> frozenset[str]:
        """Its path."""
        return frozenset({f"path:{spec.path}"})

    async def relist(self) -> Mapping[str, FileState]:
        """All of them at a glance."""
        names, surveys, spots = self._list()
        sights = await self._files.glance(spots)
        states: dict[str, FileState] = {}
        index = 0
        for name, survey in zip(names, surveys, strict=True):
            count = len(survey.spots)
            before = self._states.get(name)
            if (
                count == 1
                and survey.desired is not None
                and before is not None
                and before.at is sights[index]
                and not before.old
            ):
                states[name] = before
                index += 1
                continue
            state = self._state(name, survey, tuple(sights[index : index + count]))
            index += count
            if state is not None:
                states[name] = state
        return states

    def _list(self) -> tuple[Collection[str], Sequence[_Survey], Sequence[Spot]]:
        """Every name, its survey, and all spots; made anew only where anything changed."""
        names = self._store.names()
        if names is not self._listed[0]:
            surveys = [self._survey(name) for name in names]
            self._forget_others(names)
            self._listed = (names, surveys, [spot for survey in surveys for spot in survey.spots])
        return names, self._listed[1], self._listed[2]

    async def observe(self, name: str) -> FileState | None:
        """The wanted path and those that are still owned besides, closely."""
        survey = self._survey(name)
        self._stirred.discard(name)
        state = self._state(name, survey, tuple([await self._files.look(spot) for spot in survey.spots]))
        if state is not None:
            self._seen[name] = (survey.spots, state)
        return state

    def last_seen(self, name: str) -> FileState | None:
        """What the last look showed, if the record names no place, and no copy of one, besides those looked at."""
        spots, state = self._seen.get(name, ((), None))
        return state if name not in self._stirred and spots == self._survey(name).spots else None

    def plan(self, name: str, desired: Desired[File] | None, observed: FileState | None) -> Plan[FileAction]:
        """What to do."""
        owned = self._owned(name)
        if desired is None:
            return Converged() if observed is None else plan_removal(name, owned, observed)
        state = observed if observed is not None else FileState(Sight(desired.spec.path))
        return plan_wanted(self._wanted(name, desired), owned, state)

    async def apply(self, action: FileAction) -> None:
        """Take one step."""
        match action:
            case Keep():
                await self._keep(action)
            case MakeParents():
                await self._make_parents(action)
            case Put():
                await self._files.put(action.spec.path, self._node(action), action.expect)
            case Amend():
                await self._files.amend(action.path, action.attributes, action.expect)
            case Drop():
                await self._files.remove(action.path, action.expect)
            case Sweep():
                await self._files.sweep(action.path)
            case Release():
                await self._release(action)
            case _:
                assert_never(action)

    def facts(self, name: str, desired: Desired[File], observed: FileState | None) -> Facts:
        """The place that is wanted first, with what is there if that is to be adopted; then those owned before."""
        wanted = self._wanted(name, desired)
        path = desired.spec.path
        others = {place.path: place for place in self._owned(name).places}
        here = others.pop(path, None)
        if here is None:
            here = Place(path, made=self._made_parents(path))
            sight = observed.at if observed is not None else Sight(path)
            if desired.spec.adopt and sight.seen is not None and not self._is_made(path):
                here = replace(here, former=ledger.describe(sight.seen))
        seen = None if observed is None else observed.at.seen
        return ledger.write([here.intending(desired.spec, wanted.digest, seen), *others.values()])

    def detail(self, name: str, observed: FileState | None) -> FileDetail | None:  # noqa: ARG002  # the protocol's
        """What stands at the path; None where it couldn't be looked at."""
        if observed is None:
            return FileDetail(state="Absent")
        seen = observed.at.seen
        if observed.at.trouble is not None:
            return None
        if seen is None:
            return FileDetail(state="Absent")
        mode = None if seen.type == "symlink" else f"{seen.mode:04o}"
        return FileDetail(state=_STATES[seen.type], digest=seen.digest, mode=mode, owner=seen.owner, group=seen.group)

    def expect(self, names: Collection[str]) -> None:
        """Files have nothing to do together."""

    def done(self, name: str) -> None:
        """Nothing was begun that would have to end."""

    async def watch(self, changed: Callable[[str], None]) -> None:
        """By the events of the directories in which the Files stand."""

        def touched(path: str) -> None:
            for name in tuple(self._names.get(path, ())):
                self._stirred.add(name)
                changed(name)
            for name in tuple(self._names.get(path.rpartition("/")[0], ())):
                if self._store.desired(name) is None:  # a directory that goes once it is empty
                    changed(name)

        await self._files.watch(touched)

    def instance(self, observed: FileState | None) -> str:  # noqa: ARG002  # the protocol's
        """Nothing runs."""
        return ""

    async def restart(self, name: str) -> None:
        """A File doesn't run."""
        raise Terminal("NotRestartable", f"cannot restart File/{name}: a file doesn't run")

    async def let_go(self, name: str) -> None:
        """What it has become stays, so what was kept aside will never come back."""
        for place in self._owned(name).places:
            await self._forget_copy(name, place)

    async def logs(self, name: str, lines: int) -> list[str]:  # noqa: ARG002  # the protocol's
        """A File logs nothing."""
        return []

    async def close(self) -> None:
        """Let go of descriptors."""
        await self._files.close()

    async def _keep(self, action: Keep) -> None:
        """Record what stands there, copy it, record that: no copy is lost, and none of something older is believed."""
        place = next(place for place in self._owned(action.name).places if place.path == action.path)
        if place.former != action.former:
            place = replace(place, former=action.former, kept=False)
            await self._note(action.name, place)
        if place.former is not None and place.needs_copy and action.expect is not None:
            copy = copy_name(action.name, action.path)
            await self._files.keep(action.path, copy, place.former.digest, action.expect)
            await self._note(action.name, replace(place, kept=True))

    async def _note(self, name: str, place: Place) -> None:
        """Have the ledger say this of the place at its path, where it says otherwise."""
        places = self._owned(name).places
        now = tuple(place if other.path == place.path else other for other in places)
        if now != places:
            await self._store.note(name, ledger.write(now))

    async def _forget_copy(self, name: str, place: Place) -> None:
        """Delete what was kept, which nothing may believe in by then; the ledger names it until it is gone."""
        if place.former is not None:
            await self._note(name, place.giving_back())
            await self._files.forget(copy_name(name, place.path))

    async def _make_parents(self, action: MakeParents) -> None:
        """Record them as made, then make them: one that no record names would be left over."""
        places = list(self._owned(action.name).places)
        index = next(index for index, place in enumerate(places) if place.path == action.path)
        made = dict.fromkeys((*places[index].made, *action.parents))
        if len(made) > len(places[index].made):
            places[index] = replace(places[index], made=tuple(made))
            await self._store.note(action.name, ledger.write(places))
            self._index_made(action.name, tuple(made))
        await self._files.make_parents(action.parents)

    async def _release(self, action: Release) -> None:
        """Undo at one place, then let what was kept go, then its record: in an order that may be cut anywhere."""
        place, seen, name = action.place, action.sight.seen, action.name
        if action.restore and place.former is not None:
            await self._put_back(name, place.former, action.sight)
        elif action.remove and seen is not None:
            await self._files.remove(place.path, seen.mark)
        if action.sight.leftover:
            await self._files.sweep(place.path)
        left = await self._drop_made(name, place.made)
        await self._forget_copy(name, place)
        rest = [other for other in self._owned(name).places if other.path != place.path]
        if rest:  # what must stay now goes with the last place
            rest[0] = replace(rest[0], made=tuple(dict.fromkeys((*rest[0].made, *left))))
        else:
            self._unclaimed.update(left)
        if rest or place.former is not None or place.made:  # else the record goes as it is, and in a moment
            await self._store.note(name, ledger.write(rest))

    async def _drop_made(self, name: str, made: Sequence[str]) -> list[str]:
        """Remove the directories that were made for `name`; those that hold something or are needed are returned."""
        needed = [path for path in made if self._needed_by_others(name, path)]
        held = await self._files.drop_parents([path for path in made if path not in needed])
        left = [*needed, *held]
        self._unclaimed.difference_update(set(made).difference(left))
        return left

    async def _put_back(self, name: str, former: Former, sight: Sight) -> None:
        seen = sight.seen
        if seen is not None and seen.type == former.type == "directory":
            await self._files.amend(sight.path, Attributes(former.mode, former.uid, former.gid), seen.mark)
        else:
            node = former.node(copy_name(name, sight.path))
            await self._files.put(sight.path, node, None if seen is None else seen.mark)

    def _node(self, action: Put) -> Node:
        spec = action.spec
        return Node(
            type=action.type,
            mode=None if spec.mode is None else int(spec.mode, 8),
            uid=action.uid,
            gid=action.gid,
            content=spec.data(),
            fetch=None if spec.object is None else partial(self._fetch, spec.object),
            digest=action.digest,
            target=spec.target or "",
        )

    async def _fetch(self, ref: ObjectRef, write: Write) -> None:
        await self._objects.fetch(ref.bucket, ref.name, MAX_OBJECT, write)

    def _wanted(self, name: str, desired: Desired[File]) -> Wanted:
        """The spec with its content's digest, which is made once for each spec."""
        spec = desired.spec
        if spec.object is not None:
            return Wanted(name, spec, spec.object.digest)
        known = self._digests.get(name)
        if known is None or known[0] != desired.digest:
            data = spec.data()
            known = self._digests[name] = (desired.digest, "" if data is None else digest_of(data))
        return Wanted(name, spec, known[1])

    def _owned(self, name: str) -> Owned:
        return self._survey(name).owned

    def _survey(self, name: str) -> _Survey:
        desired, record = self._store.desired(name), self._store.record(name)
        known = self._surveys.get(name)
        if known is not None and known.desired is desired and known.record is record:
            return known
        placed = ledger.read(record)
        settled = record is not None and record.applied != "" and record.applied == record.spec_digest
        owned = Owned(placed, settled and not any(place.untouched for place in placed[:1]))
        places = {place.path: place for place in owned.places}
        paths = dict.fromkeys(() if desired is None else (desired.spec.path,)) | dict.fromkeys(places)
        spots = []
        for path in paths:
            place = places.get(path)
            former = copy_name(name, path) if place is not None and place.former is not None else ""
            accounts = (None, None)
            if desired is not None and path == desired.spec.path:
                accounts = (desired.spec.owner, desired.spec.group)
            spots.append(Spot(path, former, *accounts))
            self._names.setdefault(path, set()).add(name)
        for place in places.values():
            self._index_made(name, place.made)
        survey = self._surveys[name] = _Survey(desired, record, tuple(spots), owned)
        return survey

    def _state(self, name: str, survey: _Survey, sights: tuple[Sight, ...]) -> FileState | None:
        """The state of these sights: the same object as before where they are the same; None where nothing is left."""
        if not sights:
            return None
        state = FileState(sights[0], sights[1:])
        if survey.desired is None and isinstance(plan_removal(name, self._owned(name), state), Converged):
            return None
        before = self._states.get(name)
        if before is not None and (before.at is state.at or before.at == state.at) and before.old == state.old:
            return before
        self._states[name] = state
        self._seen.pop(name, None)
        return state

    def _forget_others(self, names: Collection[str]) -> None:
        """What is remembered of names that are gone."""
        if len(self._surveys) > len(names):
            gone = self._surveys.keys() - set(names)
            for name in gone:
                self._surveys.pop(name)
                self._states.pop(name, None)
                self._seen.pop(name, None)
                self._stirred.discard(name)
                self._digests.pop(name, None)
            self._makers = {path: makers - gone for path, makers in self._makers.items() if makers - gone}
            self._names = {}
            for name, survey in self._surveys.items():
                for spot in survey.spots:
                    self._names.setdefault(spot.path, set()).add(name)

    def _index_made(self, name: str, made: Iterable[str]) -> None:
        for path in made:
            self._makers.setdefault(path, set()).add(name)

    def _made_parents(self, path: str) -> tuple[str, ...]:
        """Parents of `path` that were made for Files: the last of them to go takes the directory along."""
        parents = [path[:index] for index, char in enumerate(path) if char == "/" and index]
        return tuple(parent for parent in parents if self._is_made(parent))

    def _is_made(self, path: str) -> bool:
        """Whether the ledger shows it as a parent that this agent made."""
        makers = self._makers.get(path, ())
        return path in self._unclaimed or any(
            path in place.made for name in makers for place in self._owned(name).places
        )

    def _needed_by_others(self, name: str, directory: str) -> bool:
        """Whether another File is wanted at or below it."""
        for other in self._store.names():
            desired = self._store.desired(other)
            if other != name and desired is not None and below(desired.spec.path, directory):
                return True
        return False


def _looks_temporary(path: str) -> bool:
    """A name that is the adapter's own, at any depth."""
    return TEMP_PREFIX in path and any(
        part.startswith(TEMP_PREFIX) and part.endswith(TEMP_SUFFIX) for part in path.split("/")
    )
