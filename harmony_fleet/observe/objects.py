"""The desired deployments that name an object of an object store. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from harmony_fleet.observe.state import Deployment
from scores.file import File


@dataclass(frozen=True, slots=True)
class Uses:
    """By an object's name, the deployments (``pi-01/web``) that want it, each with the digest that
    it wants. `unreadable` are those of which that can't be told.
    """

    of: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unreadable: Sequence[str] = ()


def uses(deployments: Iterable[Deployment], bucket: str) -> Uses:
    """List what desired-state names of `bucket`."""
    found: dict[str, dict[str, str]] = {}
    unreadable: list[str] = []
    for item in deployments:
        place, manifest = f"{item.key.device}/{item.key.deployment}", item.desired.manifest
        if item.desired.problem:
            unreadable.append(place)
        for score in manifest.scores if manifest is not None else ():
            wanted = score.object if isinstance(score, File) else None
            if wanted is not None and wanted.bucket == bucket:
                found.setdefault(wanted.name, {})[place] = wanted.digest
    return Uses(found, unreadable)
