"""Order of work: needs first; in removal the other way round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def in_the_way(claims: frozenset[str], key: Key, leaving: Iterable[OwnershipRecord]) -> list[str]:
    """Resources on their way out that still occupy what `key` claims."""
    return [str(record.key) for record in leaving if record.key != key and record.claims & claims]


def outlives(record: OwnershipRecord, leaving: Iterable[OwnershipRecord]) -> list[str]:
    """List the resources being removed that must go before `record`: they need it, or lie inside
    its directory.

    A directory may have come after a file inside it. Then both would wait for each other, so only
    the place counts: the inner one goes first.
    """
    others = [other for other in leaving if other.key != record.key]
    inside = [str(other.key) for other in others if _inside(other.claims, record.claims)]
    users = [str(other.key) for other in others if str(record.key) in other.needs]
    if users and _waits_for_itself(record, others):
        users = []
    return list(dict.fromkeys(inside + users))


def _inside(inner: frozenset[str], outer: frozenset[str]) -> bool:
    """Return whether a path of `inner` lies below one of `outer`."""
    folders = tuple(claim + "/" for claim in outer if claim.startswith("path:"))
    return bool(folders) and any(claim.startswith(folders) for claim in inner)


def _waits_for_itself(record: OwnershipRecord, others: Iterable[OwnershipRecord]) -> bool:
    """Return whether `record` waits, directly or through others, for itself."""
    known = {str(other.key): other for other in (record, *others)}
    owners = {
        claim: key
        for key, other in known.items()
        for claim in other.claims
        if claim.startswith("path:")
    }
    seen: set[str] = set()
    todo = [str(record.key)]
    while todo:
        one = known[todo.pop()]
        waiting = {need for need in one.needs if need in known}
        waiting |= {
            owners[folder] for claim in one.claims for folder in _folders(claim) if folder in owners
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
