"""Resources of an earlier life that the ledger doesn't know: the last status of each, by deployment.

In memory alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from scores.base import Score
from scores.status import ResourceStatus

LOST: Final = "LedgerLost"
MESSAGE: Final = (
    "the device's memory was lost: this was its own, and may stand there. harmony adopt takes it back; harmony delete "
    "--remains takes it off"
)


class Lost:
    """Remains of a lost memory.

    Nothing of them is ours until an operator decides, or they are exactly as desired.
    """

    def __init__(self) -> None:
        self._remains: dict[str, dict[Key, ResourceStatus]] = {}

    def of(self, deployment: str) -> Mapping[Key, ResourceStatus]:
        """List the remains of a deployment."""
        return self._remains.get(deployment, {})

    def deployments(self) -> Collection[str]:
        """List the deployments that have some."""
        return self._remains.keys()

    def add(self, deployment: str, found: Mapping[Key, ResourceStatus]) -> None:
        """Add remains; a status that is known already stays."""
        self._remains[deployment] = {**found, **self.of(deployment)}

    def drop(self, deployment: str, keys: Collection[Key]) -> None:
        """Drop `keys`, because an operator decided about them."""
        left = {key: status for key, status in self.of(deployment).items() if key not in keys}
        self._remains.pop(deployment, None)
        if left:
            self._remains[deployment] = left

    def settle(self, record: OwnershipRecord) -> None:
        """Drop a remain that is ours again with the very spec that it had."""
        told = self.of(record.deployment).get(record.key)
        if told is not None and told.spec_digest == record.spec_digest:
            self.drop(record.deployment, [record.key])

    def shown(
        self,
        deployment: str,
        desired: Mapping[Key, Desired[Score]],
        statuses: Mapping[Key, ResourceStatus],
    ) -> dict[Key, ResourceStatus]:
        """List the remains to tell, with their statuses.

        A remain that is wanted with the same spec is left out: it may be exactly as wanted.
        """
        found = {}
        for key, told in self.of(deployment).items():
            wanted, now = desired.get(key), statuses.get(key)
            if (
                wanted is None
                or wanted.deployment != deployment
                or wanted.digest != told.spec_digest
            ):
                found[key] = told
            elif now is not None and now.reason == "OwnershipConflict":
                found[key] = now.model_copy(update={"reason": LOST, "message": MESSAGE})
        return found
