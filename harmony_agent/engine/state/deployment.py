"""One deployment on this device, in memory: what is enforced, and what was said of a newer manifest
that is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from harmony_agent.core.admission import EnforcedVersion, NotAccepted, RefusedVersion
from harmony_agent.core.resources import Key
from harmony_agent.core.status import Enforced
from harmony_agent.topology.control_plane import StoredManifest


@dataclass(slots=True)
class Deployment:
    """One deployment: the manifest that is enforced, and what was said of a newer one that is
    not.
    """

    name: str
    stored: StoredManifest | None = None
    removed: bool = False
    not_accepted: NotAccepted | None = None
    refused: RefusedVersion | None = None
    """a newer generation that the device went back from"""
    keys: set[Key] = field(default_factory=set)
    followers: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    """resource key -> what restarts or reloads when that changes"""
    last_known_version: EnforcedVersion | None = None
    """what ``actual-state`` showed at the start: no manifest goes back behind it, whatever is
    remembered
    """

    @property
    def last(self) -> EnforcedVersion | None:
        """Version that a new manifest is compared with."""
        if self.stored is None or self.behind:
            return self.last_known_version
        stored = self.stored
        return EnforcedVersion(stored.lineage, stored.generation, stored.digest, self.refused)

    @property
    def behind(self) -> bool:
        """Tell if what is remembered is older than what was accepted: an old copy of the memory was
        put back.
        """
        if (
            self.stored is None
            or self.last_known_version is None
            or self.last_known_version.lineage != self.stored.lineage
        ):
            return False
        newest = self.refused or self.stored
        return self.last_known_version.generation > newest.generation

    @property
    def enforced(self) -> Enforced | None:
        """For the fold: what a status shows never goes back, also where the device's own memory was
        lost.
        """
        last = self.last
        if last is None:
            return None
        removed = self.stored is not None and self.removed
        return Enforced(last.lineage, last.generation, last.digest, removed)
