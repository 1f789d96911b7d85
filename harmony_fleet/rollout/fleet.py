"""The fleet as it was read: the roster with its projections, and what the buckets hold. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from harmony_fleet.errors import HarmonyError
from harmony_fleet.manifests.signing import UNSIGNED, Signing
from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from harmony_fleet.rollout.staged.record import Rollout
from harmony_fleet.roster.model import Roster
from harmony_fleet.roster.projection import Projection
from scores.keys import DeploymentKey

MAX_STRAYS: Final = 50
"""Deployments of which nothing but a device's own status is left, as after the loss of NATS."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """State that was read: the roster with its projections, and the buckets.

    `now` is the server's time.
    """

    roster: Roster
    projections: Mapping[DeploymentKey, Projection]
    deployments: Mapping[DeploymentKey, Deployment]
    devices: Mapping[str, Device]
    now: datetime
    signing: Signing = UNSIGNED
    changed: Mapping[str, HarmonyError] = field(default_factory=dict)
    """Deployments whose file changed: they have no projections, and stay as they stand."""
    rollouts: Mapping[str, Rollout] = field(default_factory=dict)
    """Rollouts of what the roster wants, by deployment: `projections` are what is to stand
    meanwhile.
    """
    waiting: frozenset[DeploymentKey] = frozenset()
    """Keys that wait for their wave, where something stands that isn't this home's word: they have no
    projections, and stay as they are.
    """

    def found(self, key: DeploymentKey) -> Deployment:
        """Both sides of a deployment; empty where the buckets hold nothing."""
        return self.deployments.get(key) or Deployment(key, Desired(), Actual())

    def device(self, name: str) -> Device:
        """Return a device, also one that never told of itself."""
        return self.devices.get(name) or Device(name, None)

    def expected(self) -> Iterator[tuple[DeploymentKey, Projection]]:
        """The projections that are to be there: those of disabled devices only where something
        is.
        """
        for key, projection in self.projections.items():
            if not projection.only_there or there(self.found(key)):
                yield key, projection

    def held(self) -> dict[DeploymentKey, HarmonyError]:
        """Keys that stay as they stand, because the file of their deployment changed."""
        return {
            DeploymentKey(device.name, deployment.name): self.changed[deployment.name]
            for deployment in self.roster.deployments
            if deployment.name in self.changed
            for device in self.roster.devices
            if deployment.select.picks(device)
        }

    def crowded(self) -> dict[str, list[DeploymentKey]]:
        """Devices with more strays than may be believed, and those: anybody can say anything of
        their own device.
        """
        found: dict[str, list[DeploymentKey]] = {}
        expected = self.projections.keys() | self.held().keys()
        for key, deployment in self.deployments.items():
            if key not in expected and stray(deployment):
                found.setdefault(key.device, []).append(key)
        return {name: keys for name, keys in found.items() if len(keys) > MAX_STRAYS}

    def ours(self, found: Deployment) -> bool:
        """Return whether the roster's lineage wrote the desired manifest, or without one the
        enforced one.
        """
        standing, status = found.desired.manifest, found.actual.status
        if standing is not None:
            return standing.lineage == self.roster.lineage
        return status is not None and status.lineage == self.roster.lineage

    def managed(self, found: Deployment) -> bool:
        """Return whether the roster itself wrote what stands, so that it goes once the roster names
        it no more. What was applied by hand is never taken off by a roster that shares its lineage.
        """
        if not self.ours(found) or not self.roster.shares_lineage:
            return self.ours(found)
        standing = found.desired.manifest
        return standing is not None and self.signing.noted(standing, found.desired.note)


def there(found: Deployment) -> bool:
    """Return whether anything is desired or enforced."""
    status, standing = found.actual.status, found.desired.manifest
    return (standing is not None and not standing.removed) or (
        status is not None and status.phase != "Removed"
    )


def stray(found: Deployment) -> bool:
    """Return whether a device's word is all there is of it."""
    return (
        found.desired.manifest is None
        and not found.desired.problem
        and _says_something(found.actual)
    )


def _says_something(actual: Actual) -> bool:
    return bool(actual.problem) or (actual.status is not None and actual.status.phase != "Removed")
