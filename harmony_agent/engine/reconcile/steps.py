"""Looks at resources and takes steps, the same for what is wanted and for what leaves.

Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from harmony_agent.core.actions import Act, Action
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Hold
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.kind_instance import KindInstance
from scores.base import Score
from scores.status import Detail, Drift

log = logging.getLogger(__name__)


class Steps:
    """Observes and acts through a kind, and remembers what was last observed."""

    def __init__(self, kinds: Collection[str], queue: WorkQueue) -> None:
        self._queue = queue
        self.seen: dict[str, dict[str, object]] = {kind: {} for kind in kinds}
        """kind -> name -> what was last observed; the relist compares with it"""

    async def observe(self, key: Key, reconciler: KindInstance) -> object | None:
        """Look at one resource."""
        observed = await reconciler.observe(key.name)
        if observed is None:
            self.forget(key)
        else:
            self.seen[key.kind][key.name] = observed
        return observed

    def forget(self, key: Key) -> None:
        """Drop what was last observed."""
        self.seen[key.kind].pop(key.name, None)

    async def act(
        self,
        key: Key,
        source: Desired[Score] | OwnershipRecord,
        plan: Act[Action],
        reconciler: KindInstance,
    ) -> None:
        """Apply the actions of a plan, in their order."""
        fields = {
            "resource": str(key),
            "deployment": source.deployment,
            "generation": source.generation,
        }
        for action in plan.actions:
            log.info("%s: %s: %s", key, type(action).__name__, action.reason, extra=fields)
            await reconciler.apply(action)

    def wait(self, key: Key, hold: Hold) -> None:
        """Have the queue come back when the hold ends."""
        self._queue.wait_for(key, hold.waits_for)
        if hold.seconds is not None:
            (self._queue.hold if hold.backoff else self._queue.add)(key, hold.seconds)


def held(hold: Hold, detail: Detail | None = None, episode: Drift | None = None) -> Outcome:
    """The outcome of a pass that ends with a hold."""
    return Outcome(hold.phase, hold.reason, hold.message, detail, episode)
