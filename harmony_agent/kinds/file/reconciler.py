"""File: the reconciler that the engine drives; what to do is decided in `plan`, and `act` takes the steps.

It looks through the capability Files alone; `surveys` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from harmony_agent.core.paths import Places
from harmony_agent.core.reconcile import Converged, Desired, Facts, Plan, Store
from harmony_agent.kinds.file import places as ledger
from harmony_agent.kinds.file.act import Actor
from harmony_agent.kinds.file.actions import FileAction
from harmony_agent.kinds.file.exchange import Exchange
from harmony_agent.kinds.file.places import Place
from harmony_agent.kinds.file.plan import plan_wanted
from harmony_agent.kinds.file.release import plan_removal
from harmony_agent.kinds.file.state import FileState
from harmony_agent.kinds.file.surveys import Sightings, Survey, Surveys
from harmony_agent.topology import Objects
from harmony_agent.topology.files import TEMP_PREFIX, TEMP_SUFFIX, Files, SeenType, Sight
from scores.file import File
from scores.manifest import FieldError
from scores.status import FileDetail

_SETUID: Final = 0o6000
_STATES: Final[Mapping[SeenType, Literal["PresentAt", "Directory", "Symlink"]]] = {
    "file": "PresentAt",
    "other": "PresentAt",
    "directory": "Directory",
    "symlink": "Symlink",
}


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
        self._roots = tuple(root.rstrip("/") for root in roots)
        self._forbidden = Places(forbidden)
        self._allow_setuid = allow_setuid
        self._sightings = Sightings()
        self._surveys = Surveys(store, self._sightings)
        self._exchange = Exchange(store, self._surveys)
        self._actor = Actor(files, store, objects, self._surveys, self._exchange)

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
        names, surveys, spots = self._surveys.all()
        sights = await self._files.glance(spots)
        known = self._sightings.states
        states: dict[str, FileState] = {}
        index = 0
        for name, survey in zip(names, surveys, strict=True):
            count = len(survey.spots)
            before = known.get(name)
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

    async def observe(self, name: str) -> FileState | None:
        """The wanted path and those that are still owned besides, closely."""
        survey = self._surveys.of(name)
        self._sightings.begin(name)
        state = self._state(name, survey, tuple([await self._files.look(spot) for spot in survey.spots]))
        if state is not None:
            self._sightings.end(name, survey.spots, state)
        return state

    def last_seen(self, name: str) -> FileState | None:
        """Return the last observation, if the record names no other path or backup than it covers."""
        return self._sightings.last(name, self._surveys.of(name).spots)

    def plan(self, name: str, desired: Desired[File] | None, observed: FileState | None) -> Plan[FileAction]:
        """Plan the next actions."""
        owned = self._surveys.owned(name)
        if desired is None:
            return Converged() if observed is None else plan_removal(name, owned, observed)
        state = observed if observed is not None else FileState(Sight(desired.spec.path))
        return plan_wanted(self._surveys.wanted(name, desired), owned, state)

    async def apply(self, action: FileAction) -> None:
        """Take one step."""
        await self._actor.apply(action)

    def facts(self, name: str, desired: Desired[File], observed: FileState | None) -> Facts:
        """The place that is wanted first, with what is there if that is to be adopted; then those owned before."""
        wanted = self._surveys.wanted(name, desired)
        path, seen = desired.spec.path, None if observed is None else observed.at.seen
        others = {place.path: place for place in self._surveys.owned(name).places}
        here = others.pop(path, None)
        for place in self._exchange.taken(desired.spec, seen).values():
            here = place if here is None else replace(here, made=tuple(dict.fromkeys((*here.made, *place.made))))
        if here is None:
            made = self._surveys.is_made(path)
            here = Place(path, intents=("directory",) if made else (), made=self._surveys.made_parents(path))
            if desired.spec.adopt and seen is not None and not made:
                here = replace(here, former=ledger.describe(seen))
        return ledger.write([here.intending(desired.spec, wanted.digest, seen), *others.values()])

    def taken(self, name: str, desired: Desired[File], observed: FileState | None) -> Mapping[str, Facts]:  # noqa: ARG002  # the protocol's
        """Files that hold its path and don't want it any more, with the places that each keeps."""
        seen = None if observed is None else observed.at.seen
        return {
            holder: ledger.write([other for other in self._surveys.owned(holder).places if other.path != place.path])
            for holder, place in self._exchange.taken(desired.spec, seen).items()
        }

    def detail(self, name: str, observed: FileState | None) -> FileDetail | None:  # noqa: ARG002  # the protocol's
        """Describe the object at the path. None if it couldn't be observed."""
        if observed is None:
            return FileDetail(state="Absent")
        seen = observed.at.seen
        if observed.at.trouble is not None:
            return None
        if seen is None:
            return FileDetail(state="Absent")
        mode = None if seen.type == "symlink" else f"{seen.mode:04o}"
        return FileDetail(state=_STATES[seen.type], digest=seen.digest, mode=mode, owner=seen.owner, group=seen.group)

    async def watch(self, changed: Callable[[str], None]) -> None:
        """By the events of the directories in which the Files stand."""

        def touched(path: str) -> None:
            for name in self._surveys.at(path):
                self._sightings.stir(name)
                changed(name)
            for name in self._surveys.at(path.rpartition("/")[0]):
                desired = self._store.desired(name)
                if desired is None or desired.spec.type != "directory":  # what a directory stands in the way of
                    changed(name)

        await self._files.watch(touched)

    async def let_go(self, name: str) -> None:
        """Leave the object as it is, and drop its backup."""
        await self._actor.let_go(name)

    async def close(self) -> None:
        """Let go of descriptors."""
        await self._files.close()

    def _state(self, name: str, survey: Survey, sights: tuple[Sight, ...]) -> FileState | None:
        """The state of these sights: the same object as before where they are the same; None where nothing is left."""
        if not sights:
            return None
        state = FileState(sights[0], sights[1:], self._exchange.ties(name, sights))
        if survey.desired is None and isinstance(plan_removal(name, self._surveys.owned(name), state), Converged):
            return None
        return self._sightings.settle(name, state)


def _looks_temporary(path: str) -> bool:
    """A name that is the adapter's own, at any depth."""
    return TEMP_PREFIX in path and any(
        part.startswith(TEMP_PREFIX) and part.endswith(TEMP_SUFFIX) for part in path.split("/")
    )
