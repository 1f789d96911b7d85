"""Resources of an earlier life that the ledger knows nothing of, by deployment: how each was told
last. In memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from harmony_agent.core.resources import Desired, Key, OwnershipRecord
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
        """Those of a deployment."""
        return self._remains.get(deployment, {})

    def add(self, deployment: str, found: Mapping[Key, ResourceStatus]) -> None:
        """These remain, too."""
        self._remains[deployment] = {**found, **self.of(deployment)}

    def drop(self, deployment: str, keys: Collection[Key]) -> None:
        """It was decided what becomes of these."""
        left = {key: status for key, status in self.of(deployment).items() if key not in keys}
        self._remains.pop(deployment, None)
        if left:
            self._remains[deployment] = left

    def settle(self, record: OwnershipRecord) -> None:
        """It is ours again, with the very spec that it had."""
        told = self.of(record.deployment).get(record.key)
        if told is not None and told.spec_digest == record.spec_digest:
            self.drop(record.deployment, [record.key])

    def shown(
        self,
        deployment: str,
        desired: Mapping[Key, Desired[Any]],
        statuses: Mapping[Key, ResourceStatus],
    ) -> dict[Key, ResourceStatus]:
        """Those to be told of, as a status has them; not those that may turn out to be exactly as
        they are wanted.
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
