"""File: takes the steps that the plan asks for, each safe to repeat and in an order that may be cut anywhere.

What can't be told from the device is recorded before it is done; see `places`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from harmony_agent.core.reconcile import Store
from harmony_agent.kinds.file import places as ledger
from harmony_agent.kinds.file.actions import Amend, Drop, FileAction, Keep, MakeParents, Put, Release, Sweep
from harmony_agent.kinds.file.places import Former, Place, copy_name
from harmony_agent.kinds.file.surveys import Surveys
from harmony_agent.topology import Objects
from harmony_agent.topology.files import Attributes, Files, Node, Sight, Write
from scores.file import MAX_OBJECT, ObjectRef


class Actor:
    """Changes one device's files."""

    def __init__(self, files: Files, store: Store, objects: Objects, surveys: Surveys) -> None:
        self._files, self._store, self._objects, self._surveys = files, store, objects, surveys

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

    async def let_go(self, name: str) -> None:
        """What it has become stays, so what was kept aside will never come back."""
        for place in self._surveys.owned(name).places:
            await self._forget_copy(name, place)

    async def _keep(self, action: Keep) -> None:
        """Record what stands there, copy it, record that: no copy is lost, and none of something older is believed."""
        place = next(place for place in self._surveys.owned(action.name).places if place.path == action.path)
        if place.former != action.former:
            place = replace(place, former=action.former, kept=False)
            await self._note(action.name, place)
        if place.former is not None and place.needs_copy and action.expect is not None:
            copy = copy_name(action.name, action.path)
            await self._files.keep(action.path, copy, place.former.digest, action.expect)
            await self._note(action.name, replace(place, kept=True))

    async def _note(self, name: str, place: Place) -> None:
        """Have the ledger say this of the place at its path, where it says otherwise."""
        places = self._surveys.owned(name).places
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
        places = list(self._surveys.owned(action.name).places)
        index = next(index for index, place in enumerate(places) if place.path == action.path)
        made = dict.fromkeys((*places[index].made, *action.parents))
        if len(made) > len(places[index].made):
            places[index] = replace(places[index], made=tuple(made))
            await self._store.note(action.name, ledger.write(places))
            self._surveys.index_made(action.name, tuple(made))
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
        rest = [other for other in self._surveys.owned(name).places if other.path != place.path]
        if rest:  # what must stay now goes with the last place
            rest[0] = replace(rest[0], made=tuple(dict.fromkeys((*rest[0].made, *left))))
        else:
            self._surveys.left(left)
        if rest or place.former is not None or place.made:  # else the record goes as it is, and in a moment
            await self._store.note(name, ledger.write(rest))

    async def _drop_made(self, name: str, made: Sequence[str]) -> list[str]:
        """Remove the directories that were made for `name`; those that hold something or are needed are returned."""
        needed = [path for path in made if self._surveys.needed_by_others(name, path)]
        held = await self._files.drop_parents([path for path in made if path not in needed])
        left = [*needed, *held]
        self._surveys.dropped(set(made).difference(left))
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
