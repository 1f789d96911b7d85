"""Order of work: needs first; in removal the other way round. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import overload

from harmony_agent.core.resources import Key, OwnershipRecord
from scores.status import SETTLED, ResourceStatus


def unmet(
    needs: Iterable[str], digests: Mapping[Key, str], statuses: Mapping[Key, ResourceStatus]
) -> list[str]:
    """List the needs that aren't Ready or Completed with the spec that is wanted now (`digests`)."""
    waiting = []
    for need in needs:
        key = Key.parse(need)
        status = statuses.get(key)
        if status is None or status.phase not in SETTLED or status.spec_digest != digests.get(key):
            waiting.append(need)
    return waiting


class Leaving(Sequence[OwnershipRecord]):
    """The records being removed, found by what an order among them asks for."""

    def __init__(self, records: Iterable[OwnershipRecord] = ()) -> None:
        self._records = list(records)

    @overload
    def __getitem__(self, index: int) -> OwnershipRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[OwnershipRecord]: ...
    def __getitem__(self, index: int | slice) -> OwnershipRecord | Sequence[OwnershipRecord]:
        return self._records[index]

    def __len__(self) -> int:
        return len(self._records)

    @cached_property
    def by_key(self) -> Mapping[str, OwnershipRecord]:
        """The records by their keys."""
        return {str(record.key): record for record in self._records}

    @cached_property
    def users(self) -> Mapping[str, Sequence[str]]:
        """By key, those that need it."""
        return _index((need, record) for record in self._records for need in record.needs)

    @cached_property
    def holders(self) -> Mapping[str, Sequence[str]]:
        """By claim, those that have it."""
        return _index((claim, record) for record in self._records for claim in record.claims)

    @cached_property
    def inside(self) -> Mapping[str, Sequence[str]]:
        """By the claim of a directory, those with a path below it."""
        return _index(
            (folder, record)
            for record in self._records
            for folder in {folder for claim in record.claims for folder in _folders(claim)}
        )


def _index(pairs: Iterable[tuple[str, OwnershipRecord]]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for name, record in pairs:
        found.setdefault(name, []).append(str(record.key))
    return found


def in_the_way(
    claims: frozenset[str], key: Key, leaving: Leaving, taken: Collection[Key] = ()
) -> list[str]:
    """Resources on their way out that still occupy what `key` claims, but for those that are
    `taken`.
    """
    ours = {str(key), *map(str, taken)}
    holders = (other for claim in sorted(claims) for other in leaving.holders.get(claim, ()))
    return [other for other in dict.fromkeys(holders) if other not in ours]


def outlives(record: OwnershipRecord, leaving: Leaving) -> list[str]:
    """List the resources being removed that must go before `record`: they need it, or lie inside
    its directory.

    A directory may have come after a file inside it. Then both would wait for each other, so only
    the place counts: the inner one goes first.
    """
    inside = [other for claim in sorted(record.claims) for other in leaving.inside.get(claim, ())]
    users = leaving.users.get(str(record.key), ())
    if users and _waits_for_itself(record, leaving):
        users = ()
    return [other for other in dict.fromkeys([*inside, *users]) if other != str(record.key)]


def _waits_for_itself(record: OwnershipRecord, leaving: Leaving) -> bool:
    """Return whether `record` waits, directly or through others, for itself."""
    known = {**leaving.by_key, str(record.key): record}
    seen: set[str] = set()
    todo = [str(record.key)]
    while todo:
        one = known[todo.pop()]
        waiting = {need for need in one.needs if need in known}
        waiting |= {
            owner
            for claim in one.claims
            for folder in _folders(claim)
            for owner in leaving.holders.get(folder, ())
        }
        if str(record.key) in waiting:
            return True
        todo += waiting - seen
        seen |= waiting
    return False


def _folders(claim: str) -> list[str]:
    """The claims of the directories above a claimed path."""
    parts = claim.split("/")
    return (
        ["/".join(parts[:end]) for end in range(2, len(parts))] if claim.startswith("path:") else []
    )
