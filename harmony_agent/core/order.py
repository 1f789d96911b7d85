"""What may be worked on now: needs first, and in removal the other way round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_agent.core.reconcile import Key, Record
from scores.status import SETTLED, ResourceStatus


def unmet(needs: Iterable[str], digests: Mapping[Key, str], statuses: Mapping[Key, ResourceStatus]) -> list[str]:
    """Of `needs`, those that are not Ready or Completed with the spec that is wanted now (`digests`)."""
    waiting = []
    for need in needs:
        key = Key.parse(need)
        status = statuses.get(key)
        if status is None or status.phase not in SETTLED or status.spec_digest != digests.get(key):
            waiting.append(need)
    return waiting


def in_the_way(claims: frozenset[str], key: Key, leaving: Iterable[Record]) -> list[str]:
    """Resources on their way out that still occupy what `key` claims."""
    return [str(record.key) for record in leaving if record.key != key and record.claims & claims]


def outlives(record: Record, leaving: Iterable[Record]) -> list[str]:
    """Resources on their way out that must be gone before `record`: those that need it, or lie inside its directory."""
    return [
        str(other.key)
        for other in leaving
        if other.key != record.key and (str(record.key) in other.needs or _inside(other.claims, record.claims))
    ]


def _inside(inner: frozenset[str], outer: frozenset[str]) -> bool:
    """Whether a path of `inner` lies below one of `outer`."""
    folders = tuple(claim + "/" for claim in outer if claim.startswith("path:"))
    return bool(folders) and any(claim.startswith(folders) for claim in inner)
