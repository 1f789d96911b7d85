"""File: takes the steps that the plan asks for, each safe to repeat and in an order that may be cut
anywhere.

What can't be told from the device is recorded before it is done; see `facts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Facts
from harmony_agent.kinds.file import facts as ledger
from harmony_agent.kinds.file.actions import (
    BackUp,
    Drop,
    FileAction,
    MakeParents,
    Prune,
    Put,
    Release,
    SetAttributes,
    Sweep,
)
from harmony_agent.kinds.file.exchange import Exchange
from harmony_agent.kinds.file.facts import OwnedPath, PreviousNode
from harmony_agent.kinds.file.observe import PathIndex
from harmony_agent.topology import ObjectStore
from harmony_agent.topology.files import Attributes, Files, FileSpec, PathState, Write
from harmony_agent.topology.secrets import Secrets, fill
from scores.file import MAX_OBJECT, File, ObjectRef


class Applier:
    """Changes one device's files."""

    def __init__(
        self,
        files: Files,
        store: KindView[File],
        objects: ObjectStore,
        surveys: PathIndex,
        exchange: Exchange,
        *,
        secrets: Secrets,
    ) -> None:
        self._files, self._store, self._objects = files, store, objects
        self._secrets = secrets
        self._index, self._exchange = surveys, exchange

    async def apply(self, action: FileAction) -> None:
        """Take one step."""
        match action:
            case BackUp():
                await self._back_up(action)
            case MakeParents():
                await self._make_parents(action)
            case Put():
                await self._files.put(action.spec.path, self._node(action), action.expect)
            case SetAttributes():
                await self._amend(action)
            case Drop():
                await self._files.remove(action.path, action.expect)
            case Sweep():
                await self._files.sweep(action.path)
            case Prune():
                await self._prune(action)
            case Release():
                await self._release(action)
            case _:
                assert_never(action)

    async def release(self, name: str) -> None:
        """Leave the object as it is, and drop its backup."""
        for place in self._index.owned(name).places:
            await self._forget_copy(name, place)

    async def _back_up(self, action: BackUp) -> None:
        """Record what stands there, copy it, record that: no copy is lost, and none of something
        older is believed.
        """
        place, former = self._place(action.name, action.path), action.former
        if former is not None and former.type != "file":  # of a file the copy tells
            await self._files.try_owner(action.path, former.uid, former.gid)
        if place.former != action.former:
            place = replace(place, former=action.former, kept=False)
            await self._note(action.name, place)
        if place.former is not None and place.needs_copy and action.expect is not None:
            copy = place.copy_of(action.name)
            await self._files.back_up(action.path, copy, place.former.digest, action.expect)
            await self._note(action.name, replace(place, kept=True))

    async def _note(self, name: str, place: OwnedPath) -> None:
        """Have the ledger say this of the place at its path, where it says otherwise."""
        places = self._index.owned(name).places
        now = tuple(place if other.path == place.path else other for other in places)
        if now != places:
            await self._store.note(name, ledger.write(now))

    async def _forget_copy(self, name: str, place: OwnedPath) -> None:
        """Delete what was kept, which nothing may believe in by then; the ledger names it until it
        is gone.
        """
        if place.former is not None:
            await self._note(name, place.giving_back())
            await self._files.forget(place.copy_of(name))

    def _place(self, name: str, path: str) -> OwnedPath:
        """The place as the ledger has it now. Raises Transient where another File took it
        meanwhile.
        """
        place = self._index.place(name, path)
        if place is None:
            raise Transient(
                "ChangedMeanwhile",
                f"cannot change {path}: another File has it now",
                delay=0.2,
                phase="Progressing",
            )
        return place

    async def _amend(self, action: SetAttributes) -> None:
        """Change mode and owner; make it anew where root took it, which only its directory's owner
        may do then.
        """
        try:
            await self._files.set_attributes(action.path, action.attributes, action.expect)
        except Transient as error:
            if error.reason != "PermissionDenied" or action.otherwise is None:
                raise
            await self.apply(action.otherwise)

    async def _make_parents(self, action: MakeParents) -> None:
        """Record them as made, then make them: one that no record names would be left over."""
        places = list(self._index.owned(action.name).places)
        index = next(index for index, place in enumerate(places) if place.path == action.path)
        made = dict.fromkeys((*places[index].made, *action.parents))
        if len(made) > len(places[index].made):
            places[index] = replace(places[index], made=tuple(made))
            await self._store.note(action.name, ledger.write(places))
            self._index.index_made(action.name, tuple(made))
        await self._files.make_parents(action.parents)

    async def _release(self, action: Release) -> None:
        """Undo at one place, then let what was kept go, then its record: in an order that may be
        cut anywhere.
        """
        name, seen = action.name, action.path_state.stat
        place = self._place(name, action.place.path)
        if self._exchange.ties(name, (action.path_state,)).taker(place.path) is not None:
            message = f"cannot give up {place.path}: another File is to have it"
            raise Transient("ChangedMeanwhile", message, delay=0.2, phase="Progressing")
        if action.restore and place.former is not None:
            await self._put_back(place.copy_of(name), place.former, action.path_state)
        elif action.remove and seen is not None:
            await self._files.remove(place.path, seen.fingerprint)
        if action.path_state.leftover:
            await self._files.sweep(place.path)
        left = await self._drop_made(name, place.made)
        await self._forget_copy(name, place)
        rest = [other for other in self._index.owned(name).places if other.path != place.path]
        heirs = self._inherit(name, [*left, *([place.path] if action.stays else [])], rest)
        if (
            rest or heirs or action.stays or place.former is not None or place.made
        ):  # else the record goes in a moment
            await self._share(name, rest, heirs)

    async def _prune(self, action: Prune) -> None:
        """Drop what nothing needs; what holds something is passed on or let go of."""
        place, name = self._place(action.name, action.path), action.name
        spare = [path for path in place.made if not self._exchange.needed_by_others(name, path)]
        left = await self._drop_made(name, spare)
        rest = [
            replace(other, made=tuple(path for path in other.made if path not in spare))
            if other is place
            else other
            for other in self._index.owned(name).places
        ]
        heirs = self._inherit(name, left, [])
        await self._share(name, rest, heirs)

    async def _share(
        self, name: str, places: Sequence[OwnedPath], heirs: Mapping[str, Facts]
    ) -> None:
        """Have the ledger say all of it at once."""
        if not await self._store.share(name, {name: ledger.write(places), **heirs}):
            others = ", ".join(f"File/{heir}" for heir in heirs)
            raise Transient("WaitsFor", f"waits for {others}", delay=0.1, phase="Progressing")
        for heir in heirs:
            self._index.of(heir)  # so that what was made for it is known

    def _inherit(
        self, name: str, directories: Sequence[str], rest: list[OwnedPath]
    ) -> dict[str, Facts]:
        """Directories that stay go with the Files that have places in them; else with the last of
        its own places.

        Where one of those Files has the directory already, nothing is written.
        """
        given: dict[str, list[OwnedPath]] = {}
        alone = []
        for directory in directories:
            heirs = self._exchange.heirs(name, directory)
            if any(
                directory in place.made
                for heir in heirs
                for place in self._index.owned(heir).places
            ):
                continue  # one of them takes it along as it is: of a thousand that go, none writes the others' records
            for heir in heirs:
                places = given.setdefault(heir, list(self._index.owned(heir).places))
                at = next(
                    i
                    for i, place in enumerate(places)
                    if place.path.startswith(directory + "/") and not place.vacant
                )
                places[at] = replace(
                    places[at], made=tuple(dict.fromkeys((*places[at].made, directory)))
                )
            alone += [] if heirs else [directory]
        if rest:
            rest[0] = replace(rest[0], made=tuple(dict.fromkeys((*rest[0].made, *alone))))
        else:
            self._index.left(alone)
        return {heir: ledger.write(places) for heir, places in given.items()}

    async def _drop_made(self, name: str, made: Sequence[str]) -> list[str]:
        """Remove the directories that were made for `name`; those that hold something or are needed
        are returned.
        """
        needed = [path for path in made if self._exchange.needed_by_others(name, path)]
        held = await self._files.drop_parents([path for path in made if path not in needed])
        left = [*needed, *held]
        self._index.dropped(set(made).difference(left))
        return left

    async def _put_back(self, copy: str, former: PreviousNode, path_state: PathState) -> None:
        seen = path_state.stat
        if seen is not None and seen.type == former.type == "directory":
            await self._files.set_attributes(
                path_state.path, Attributes(former.mode, former.uid, former.gid), seen.fingerprint
            )
        else:
            node = former.node(copy)
            await self._files.put(path_state.path, node, None if seen is None else seen.fingerprint)

    def _node(self, action: Put) -> FileSpec:
        spec = action.spec
        return FileSpec(
            type=action.type,
            mode=None if spec.kept_mode is None else int(spec.kept_mode, 8),
            uid=action.uid,
            gid=action.gid,
            content=self._content(action),
            fetch=None if spec.object is None else partial(self._fetch, spec.object),
            digest=action.digest,
            target=spec.target or "",
        )

    def _content(self, action: Put) -> bytes | None:
        """The content of the Score; of a template only the one that the plan was made of."""
        template = action.spec.template
        if template is None:
            return action.spec.data()
        content = fill(template, self._secrets)
        if self._secrets.digest(content) != action.digest:
            said = f"cannot write {action.spec.path}: a secret was given anew meanwhile"
            raise Transient("ChangedMeanwhile", said, delay=0.1, phase="Progressing")
        return content

    async def _fetch(self, ref: ObjectRef, write: Write) -> None:
        await self._objects.fetch(ref.bucket, ref.name, MAX_OBJECT, write)
