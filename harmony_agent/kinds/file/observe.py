"""File: where to look for a name, which names a path concerns, and what was seen of each.

Kept in memory alone, and made anew from the store where anything changed. Nothing is looked at or
changed here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from harmony_agent.core.frozen import frozen
from harmony_agent.core.paths import parents
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, OwnershipRecord
from harmony_agent.kinds.file import facts as ledger
from harmony_agent.kinds.file.facts import Owned, OwnedPath
from harmony_agent.kinds.file.observed import FileState
from harmony_agent.topology.files import PathQuery
from scores.file import File


@frozen()
class NamePaths:
    """Paths to query for a name, valid while its spec and record stay the same."""

    desired: Desired[File] | None
    record: OwnershipRecord | None
    queries: tuple[PathQuery, ...]
    owned: Owned


class ObservationCache:
    """Observations of each name.

    `states` come from any query, relists as well. `last` is the last exact one.
    """

    def __init__(self) -> None:
        self.states: dict[str, FileState] = {}
        self._looks: dict[str, tuple[tuple[PathQuery, ...], FileState]] = {}
        """by name: where it was looked at last, and what was seen"""
        self._stirred: set[str] = set()
        """of these there was an event since their last look began"""

    def begin(self, name: str) -> None:
        """A close look at it begins."""
        self._stirred.discard(name)

    def stir(self, name: str) -> None:
        """There was an event, so its last look tells nothing any more."""
        self._stirred.add(name)

    def end(self, name: str, queries: tuple[PathQuery, ...], state: FileState) -> None:
        """The look that began has shown this."""
        self._looks[name] = (queries, state)

    def last(self, name: str, queries: tuple[PathQuery, ...]) -> FileState | None:
        """Return the last exact observation, if it had the same queries and no event came since it
        began.
        """
        seen_at, state = self._looks.get(name, ((), None))
        return state if name not in self._stirred and seen_at == queries else None

    def settle(self, name: str, state: FileState) -> FileState:
        """The state that is known of it now: the same object as before where they are the same."""
        before = self.states.get(name)
        if (
            before is not None
            and before.at == state.at
            and before.old == state.old
            and before.ties == state.ties
            and before.wanted == state.wanted
        ):
            return before
        self.states[name] = state
        self._looks.pop(name, None)
        return state

    def forget(self, name: str) -> None:
        """It is gone."""
        self.states.pop(name, None)
        self._looks.pop(name, None)
        self._stirred.discard(name)


class PathIndex:
    """The survey of each name, and by path who stands there and who made the directory."""

    def __init__(self, store: KindView[File], cache: ObservationCache) -> None:
        self._store, self._cache = store, cache
        self._known: dict[str, NamePaths] = {}
        self._listed: tuple[Collection[str] | None, Sequence[NamePaths], Sequence[PathQuery]] = (
            None,
            (),
            (),
        )
        self._names: dict[str, set[str]] = {}
        self._makers: dict[str, set[str]] = {}
        self._unclaimed: set[str] = set()

    def all(self) -> tuple[Collection[str], Sequence[NamePaths], Sequence[PathQuery]]:
        """Every name, its survey, and all spots; made anew only where anything changed."""
        names = self._store.names()
        if names is not self._listed[0]:
            index = [self.of(name) for name in names]
            self._forget_others(names)
            self._listed = (names, index, [query for survey in index for query in survey.queries])
        return names, self._listed[1], self._listed[2]

    def of(self, name: str) -> NamePaths:
        """Of one name."""
        desired, record = self._store.desired(name), self._store.record(name)
        known = self._known.get(name)
        if known is not None and known.desired is desired and known.record is record:
            return known
        owned = ledger.owned(record)
        places = {place.path: place for place in owned.places}
        queries = _spots(name, desired, places)
        for query in queries:
            self._names.setdefault(query.path, set()).add(name)
        for place in places.values():
            self.index_made(name, place.made)
        survey = self._known[name] = NamePaths(desired, record, queries, owned)
        return survey

    def owned(self, name: str) -> Owned:
        """Paths that the ledger shows as owned."""
        return self.of(name).owned

    def place(self, name: str, path: str) -> OwnedPath | None:
        """The place at `path` that the ledger says is its own."""
        return next((place for place in self.owned(name).places if place.path == path), None)

    def at(self, path: str) -> tuple[str, ...]:
        """The names that are looked for there."""
        return tuple(self._names.get(path, ()))

    def index_made(self, name: str, made: Iterable[str]) -> None:
        """These directories were made for it, as the ledger says."""
        for path in made:
            self._makers.setdefault(path, set()).add(name)

    def left(self, made: Iterable[str]) -> None:
        """These directories stay, and the last File that the ledger names as their maker goes."""
        self._unclaimed.update(made)

    def dropped(self, made: Iterable[str]) -> None:
        """These directories are gone."""
        self._unclaimed.difference_update(made)

    def made_parents(self, path: str) -> tuple[str, ...]:
        """Parents of `path` that were made for Files: the last of them to go takes the directory
        along.
        """
        return tuple(parent for parent in parents(path) if self.is_made(parent))

    def is_made(self, path: str) -> bool:
        """Return whether the ledger shows it as a parent that this agent made."""
        makers = self._makers.get(path, ())
        return path in self._unclaimed or any(
            path in place.made for name in makers for place in self.owned(name).places
        )

    def _forget_others(self, names: Collection[str]) -> None:
        """Drop cached entries of names that are gone."""
        if len(self._known) > len(names):
            gone = self._known.keys() - set(names)
            for name in gone:
                self._known.pop(name)
                self._cache.forget(name)
            self._makers = {
                path: makers - gone for path, makers in self._makers.items() if makers - gone
            }
            self._names = {}
            for name, survey in self._known.items():
                for query in survey.queries:
                    self._names.setdefault(query.path, set()).add(name)


def _spots(
    name: str, desired: Desired[File] | None, places: Mapping[str, OwnedPath]
) -> tuple[PathQuery, ...]:
    """The path that is wanted first, then those that are owned; with the accounts that its Score
    names.
    """
    queries = []
    for path in dict.fromkeys(() if desired is None else (desired.spec.path,)) | dict.fromkeys(
        places
    ):
        place = places.get(path)
        former = place.copy_of(name) if place is not None and place.former is not None else ""
        accounts: tuple[str | None, str | None] = (None, None)
        if desired is not None and path == desired.spec.path:
            accounts = (desired.spec.owner, desired.spec.group)
        keyed = place is not None and place.keyed
        if desired is not None and path == desired.spec.path:
            keyed = bool(desired.secrets)
        queries.append(PathQuery(path, former, *accounts, keyed=keyed))
    return tuple(queries)
