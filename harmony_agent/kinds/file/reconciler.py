"""File: the reconciler that the engine drives; what to do is decided in `plan`, and `apply` takes
the steps.

It looks through the capability Files alone; `observe` says where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal

from harmony_agent.core.actions import Converged, Plan
from harmony_agent.core.errors import Transient
from harmony_agent.core.paths import PathSet
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from harmony_agent.core.secrets import missing
from harmony_agent.kinds.file import facts as ledger
from harmony_agent.kinds.file.actions import FileAction
from harmony_agent.kinds.file.apply import Applier
from harmony_agent.kinds.file.exchange import Exchange
from harmony_agent.kinds.file.facts import OwnedPath
from harmony_agent.kinds.file.observe import NamePaths, ObservationCache, PathIndex
from harmony_agent.kinds.file.observed import FileState
from harmony_agent.kinds.file.plan import FileTarget, content_digest, differences, plan
from harmony_agent.kinds.file.policy import FilePolicy
from harmony_agent.kinds.file.removal import removal
from harmony_agent.topology import ObjectStore
from harmony_agent.topology.files import Files, ObjectType, PathState
from harmony_agent.topology.secrets import NO_SECRETS, Secrets, fill
from scores.file import File
from scores.manifest import FieldError
from scores.status import FileDetail

_STATES: Final[Mapping[ObjectType, Literal["PresentAt", "Directory", "Symlink"]]] = {
    "file": "PresentAt",
    "other": "PresentAt",
    "directory": "Directory",
    "symlink": "Symlink",
}


class FileReconciler:
    """Implements `core.reconciler.Reconciler`.

    `roots` are the directories below which a File may be; nothing may be at, in or above one of
    `forbidden` (what is the agent's own, and where its power comes from).
    """

    kind = "File"
    spec_type = File

    def __init__(
        self,
        files: Files,
        store: KindView[File],
        objects: ObjectStore,
        *,
        secrets: Secrets = NO_SECRETS,
        roots: Sequence[str],
        singles: Sequence[str] = (),
        forbidden: Sequence[str] = (),
        allow_setuid: bool = False,
    ) -> None:
        self._files = files
        self._store = store
        self._policy = FilePolicy(
            tuple(root.rstrip("/") for root in roots),
            frozenset(singles),
            PathSet(forbidden),
            allow_setuid,
        )
        self._cache = ObservationCache()
        self._relisted: tuple[object, object, Mapping[str, FileState]] = (None, None, {})
        """the names and looks that the last relist was made of"""
        self._index = PathIndex(store, self._cache)
        self._exchange = Exchange(store, self._index)
        self._applier = Applier(files, store, objects, self._index, self._exchange, secrets=secrets)
        self._secrets = secrets
        self._filled: dict[str, tuple[Desired[File], str]] = {}
        """the digest of each template's content, by name"""

    def admit(self, spec: File) -> Iterable[FieldError]:
        """List what the configuration forbids."""
        return self._policy.violations(spec)

    def claims(self, spec: File) -> frozenset[str]:
        """Its path."""
        return frozenset({f"path:{spec.path}"})

    async def relist(self) -> Mapping[str, FileState]:
        """All of them at a glance."""
        names, surveys, queries = self._index.all()
        path_states = await self._files.stat_cached(queries)
        last_names, last_states, last = self._relisted
        if names is last_names and path_states is last_states:
            return last
        known = self._cache.states
        states: dict[str, FileState] = {}
        index = 0
        for name, survey in zip(names, surveys, strict=True):
            count = len(survey.queries)
            before = known.get(name)
            if (
                count == 1
                and survey.desired is not None
                and not survey.desired.secrets
                and before is not None
                and before.at is path_states[index]
                and not before.old
            ):
                states[name] = before
                index += 1
                continue
            state = self._state(name, survey, tuple(path_states[index : index + count]))
            index += count
            if state is not None:
                states[name] = state
        self._relisted = names, path_states, states
        return states

    async def observe(self, name: str) -> FileState | None:
        """The wanted path and those that are still owned besides, closely."""
        survey = self._index.of(name)
        self._cache.begin(name)
        state = self._state(
            name, survey, tuple([await self._files.stat_exact(query) for query in survey.queries])
        )
        if state is not None:
            self._cache.end(name, survey.queries, state)
        return state

    def cached(self, name: str) -> FileState | None:
        """Return the last observation, if the record names no other path or backup than it
        covers.
        """
        survey = self._index.of(name)
        state = self._cache.last(name, survey.queries)
        if state is None or survey.desired is None or not survey.desired.secrets:
            return state
        return replace(state, wanted=self._wanted(name, survey.desired))

    def plan(
        self,
        name: str,
        desired: Desired[File] | None,
        record: OwnershipRecord | None,
        observed: FileState | None,
    ) -> Plan[FileAction]:
        """Plan the next actions."""
        return plan(name, desired, record, observed)

    async def apply(self, action: FileAction) -> None:
        """Take one step."""
        await self._applier.apply(action)

    def facts(
        self,
        desired: Desired[File],
        record: OwnershipRecord | None,
        observed: FileState | None,
    ) -> Facts:
        """The place that is wanted first, with what is there if that is to be adopted; then those
        owned before.
        """
        digest = self._wanted(desired.spec.name, desired) or content_digest(desired.spec)
        path, seen = desired.spec.path, None if observed is None else observed.at.stat
        others = {place.path: place for place in ledger.owned(record).places}
        here = others.pop(path, None)
        for place in filter(None, self._exchange.taken(desired.spec, seen).values()):
            here = (
                place
                if here is None
                else replace(here, made=tuple(dict.fromkeys((*here.made, *place.made))))
            )
        if here is None:
            made = self._index.is_made(path)
            here = OwnedPath(
                path, intents=("directory",) if made else (), made=self._index.made_parents(path)
            )
            if desired.spec.adopt and seen is not None and not made:
                here = replace(here, former=ledger.describe(seen))
        known = record is not None and bool(record.facts)
        if known and seen is not None and _is_anothers(here, desired.spec, observed, digest):
            here = replace(here, former=ledger.describe(seen))
        return ledger.write([here.intending(desired.spec, digest, seen), *others.values()])

    def taken(
        self,
        name: str,  # the protocol's
        desired: Desired[File],
        observed: FileState | None,
    ) -> Mapping[str, Facts]:
        """Files that hold its path and don't want it any more, with the places that each keeps."""
        path, seen = desired.spec.path, None if observed is None else observed.at.stat
        return {
            holder: ledger.write(
                [place for place in self._index.owned(holder).places if place.path != path]
            )
            for holder in self._exchange.taken(desired.spec, seen)
        }

    def detail(
        self,
        record: OwnershipRecord | None,
        observed: FileState | None,
    ) -> FileDetail | None:
        """Describe the object at the path. None if it couldn't be observed."""
        if observed is None:
            return FileDetail(state="Absent")
        seen = observed.at.stat
        if observed.at.error is not None:
            return None
        if seen is None:
            return FileDetail(state="Absent")
        mode = None if seen.type == "symlink" else f"{seen.mode:04o}"
        keyed = any(place.keyed for place in ledger.read(record)[:1])
        return FileDetail(
            state=_STATES[seen.type],
            digest=None if keyed else seen.digest,
            mode=mode,
            owner=seen.owner,
            group=seen.group,
        )

    async def watch(self, changed: Callable[[str], None]) -> None:
        """By the events of the directories in which the Files stand."""

        def touched(path: str) -> None:
            for name in self._index.at(path):
                self._cache.stir(name)
                changed(name)
            for name in self._index.at(path.rpartition("/")[0]):
                desired = self._store.desired(name)
                if (
                    desired is None or desired.spec.type != "directory"
                ):  # what a directory stands in the way of
                    changed(name)

        await self._files.watch(touched)

    async def release(self, name: str) -> None:
        """Leave the object as it is, and drop its backup."""
        await self._applier.release(name)

    async def close(self) -> None:
        """Let go of descriptors."""
        await self._files.close()

    def _state(
        self, name: str, survey: NamePaths, path_states: tuple[PathState, ...]
    ) -> FileState | None:
        """The state of these sights: the same object as before where they are the same; None where
        nothing is left.
        """
        if not path_states:
            return None
        ties, wanted = self._exchange.ties(name, path_states), self._wanted(name, survey.desired)
        state = FileState(path_states[0], path_states[1:], ties, wanted)
        if survey.desired is None and isinstance(
            removal(name, self._index.owned(name), state), Converged
        ):
            return None
        return self._cache.settle(name, state)

    def _wanted(self, name: str, desired: Desired[File] | None) -> str:
        """The digest of a template's content, made once for each version of its secrets."""
        if desired is None or desired.spec.template is None or missing(desired) is not None:
            self._filled.pop(name, None)
            return ""
        known, digest = self._filled.get(name, (None, ""))
        if known is not desired:
            try:
                digest = self._secrets.digest(fill(desired.spec.template, self._secrets))
            except Transient:
                return ""  # the step says what is wrong
            self._filled[name] = (desired, digest)
        return digest


def _is_anothers(here: OwnedPath, spec: File, observed: FileState | None, digest: str) -> bool:
    """Return whether what stands at the place is as wanted, though we never made it: it stays when
    the place is given up.
    """
    seen = None if observed is None else observed.at.stat
    if observed is None or seen is None or here.former is not None or here.may_be_ours(seen):
        return False
    return not spec.secret_names() and not differences(
        FileTarget(spec.name, spec, digest), observed.at
    )
