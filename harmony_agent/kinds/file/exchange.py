"""File: what passes from one File to another, and what of a File's places others need.

Known from the ledger and from what is wanted. Nothing is looked at or changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from harmony_agent.core.paths import parents
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.file.facts import OwnedPath
from harmony_agent.kinds.file.observe import PathIndex
from harmony_agent.kinds.file.observed import NONE, Ties
from harmony_agent.topology.files import ObjectStat, PathState
from scores.file import File


class Exchange:
    """The Files of a device as far as they concern one another."""

    def __init__(self, store: KindView[File], index: PathIndex) -> None:
        self._store, self._index = store, index
        self._paths: tuple[Mapping[str, Desired[File]], Mapping[str, str], Collection[str]] = (
            {},
            {},
            (),
        )
        """what is wanted, who wants each path, and the directories above what is to stand"""

    def needed_by_others(self, name: str, directory: str) -> bool:
        """Return whether another File is wanted below it, or it itself as a directory."""
        at = self._wanted_at(directory)
        if at is not None and at != name and self._store.wanted()[at].spec.type == "directory":
            return True
        return self._wanted_below(name, directory) is not None

    def taken(self, spec: File, seen: ObjectStat | None) -> Mapping[str, OwnedPath | None]:
        """Find the File that holds the desired place and doesn't want it any more, with the place
        as it passes on.

        None: it gave the place up already and has the claim left. Without that it might wait for
        this File, and this File for it.
        """
        found: dict[str, OwnedPath | None] = {}
        for holder in self._store.holders(f"path:{spec.path}"):
            place = self._index.place(holder, spec.path)
            if place is None and holder != spec.name and self._store.desired(holder) is None:
                found[holder] = None
            elif place is not None and self._gives_up(holder, place, spec, seen):
                found[holder] = place.passed_on(holder)
        return found

    def _gives_up(self, holder: str, place: OwnedPath, spec: File, seen: ObjectStat | None) -> bool:
        if holder == spec.name:
            return False
        desired, record = self._store.desired(holder), self._store.record(holder)
        if desired is None and record is not None and record.on_remove == "orphan":
            return False  # what it leaves is nobody's
        return (desired is None or desired.spec.path != place.path) and place.may_pass(
            seen, adopt=spec.adopt
        )

    def ties(self, name: str, path_states: Iterable[PathState]) -> Ties:
        """Collect what delays or hurries others in giving up the places that `name` doesn't want
        any more.
        """
        desired = self._store.desired(name)
        here = None if desired is None else desired.spec.path
        if desired is not None and not any(
            place.path != here for place in self._index.owned(name).places
        ):
            spare, made = self._spare(name, desired.spec.path), self._made(desired.spec)
            return Ties(spare=spare, made=made) if spare or made else NONE
        seen = {path_state.path: path_state.stat for path_state in path_states}
        held, heirs, early = [], set(), set()
        for place in self._index.owned(name).places:
            path = place.path
            if path == here:
                continue
            taker = self._taker(name, place, seen.get(path))
            if taker is not None:
                held.append((path, taker))
            elif self._passes_on(name, path, seen.get(path)):
                heirs.add(path)
            if taker is None and desired is not None and self._blocks(place, seen.get(path)):
                early.add(path)
        made = desired is not None and self._made(desired.spec)
        if not (held or heirs or early or made):
            return NONE
        return Ties(tuple(held), frozenset(heirs), frozenset(early), made=made)

    def _made(self, spec: File) -> bool:
        """Return whether its path is a directory that was made as a parent of Files."""
        return self._index.is_made(spec.path)

    def _spare(self, name: str, path: str) -> tuple[str, ...]:
        """Parents of a path that is wanted absent which were made for it and nothing else needs."""
        place = self._index.place(name, path)
        if place is None or place.type != "absent":
            return ()
        return tuple(parent for parent in place.made if not self.needed_by_others(name, parent))

    def _taker(self, name: str, place: OwnedPath, seen: ObjectStat | None) -> str | None:
        """Find the next owner of the place: the File that wants it, or one that wants a path in it
        and has none yet.
        """
        taker = self._wanted_at(place.path)
        if taker is not None:
            spec = self._store.wanted()[taker].spec
            return taker if taker != name and self._gives_up(name, place, spec, seen) else None
        if seen is None or not _is_directory(seen) or not place.may_be_ours(seen):
            return None
        heirs = self.heirs(name, place.path)
        if not heirs:
            return self._wanted_below(name, place.path)
        return next((heir for heir in heirs if self._clears(heir, place.path)), None)

    def _passes_on(self, name: str, path: str, seen: ObjectStat | None) -> bool:
        """Return whether the directory stays for other Files that have places in it."""
        if (
            seen is None
            or not _is_directory(seen)
            or (seen.empty and self._wanted_below(name, path) is None)
        ):
            return False
        return bool(self.heirs(name, path))

    def _clears(self, name: str, directory: str) -> bool:
        """Return whether something in the directory is about to go, for its File wants it
        absent.
        """
        places, inside = self._index.owned(name).places, directory + "/"
        desired = self._store.desired(name)
        return desired is not None and any(
            place.path == desired.spec.path
            and place.path.startswith(inside)
            and place.type == "absent"
            for place in places
            if not place.vacant
        )

    def heirs(self, name: str, directory: str) -> list[str]:
        """Other Files that have a place in `directory`: the last of them to go takes it along."""
        inside = directory + "/"
        return [
            other
            for other in self._store.names()
            if other != name
            and any(
                place.path.startswith(inside) and not place.vacant
                for place in self._index.owned(other).places
            )
        ]

    def _blocks(self, place: OwnedPath, seen: ObjectStat | None) -> bool:
        """Return whether another File can't get its path while something stands at this one."""
        target = self._store.wanted()
        if not _is_directory(seen) and place.path in self._above():
            return True
        above = (self._wanted_at(path) for path in parents(place.path))
        return any(name is not None and target[name].spec.type != "directory" for name in above)

    def _wanted_at(self, path: str) -> str | None:
        """Find the File that wants `path`."""
        return self._wanted()[1].get(path)

    def _above(self) -> Collection[str]:
        """The directories above any path that is wanted."""
        return self._wanted()[2]

    def _wanted_below(self, name: str, directory: str) -> str | None:
        """Another File that is wanted in `directory`."""
        if directory not in self._above():
            return None
        inside = directory + "/"
        target, paths, _ = self._wanted()
        return next(
            (
                other
                for path, other in paths.items()
                if other != name and path.startswith(inside) and target[other].spec.type != "absent"
            ),
            None,
        )

    def _wanted(self) -> tuple[Mapping[str, Desired[File]], Mapping[str, str], Collection[str]]:
        target = self._store.wanted()
        if target is not self._paths[0]:
            paths = {desired.spec.path: name for name, desired in target.items()}
            stand = [
                desired.spec.path for desired in target.values() if desired.spec.type != "absent"
            ]
            self._paths = (
                target,
                paths,
                frozenset(above for path in stand for above in parents(path)),
            )
        return self._paths


def _is_directory(seen: ObjectStat | None) -> bool:
    return seen is not None and seen.type == "directory"
