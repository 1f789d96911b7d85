"""Looks at resources and takes steps, the same for what is wanted and for what leaves.

Decides nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from harmony_agent.core.actions import Act, Action
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Hold
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from scores.base import Score
from scores.status import Detail, Drift

log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""Number of rounds of one pass before it gives way to others."""


class Interrupted(Exception):
    """The pass was about an older spec, or is paused. What it began is left as after a SIGKILL."""


class Steps:
    """Observes and acts through a kind, and remembers what was last observed."""

    def __init__(self, state: DeviceState, kinds: Collection[str], queue: WorkQueue) -> None:
        self._state = state
        self._queue = queue
        self._under_way: dict[Key, anyio.CancelScope] = {}
        self.seen: dict[str, dict[str, object]] = {kind: {} for kind in kinds}
        """kind -> name -> what was last observed; the relist compares with it"""

    async def observe(self, key: Key, reconciler: KindInstance) -> object | None:
        """Look at one resource. Raises Interrupted."""
        with self._interruptible(key):
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
        """Apply the actions of a plan, in their order. Raises Interrupted."""
        fields = {
            "resource": str(key),
            "deployment": source.deployment,
            "generation": source.generation,
        }
        for action in plan.actions:
            if self._is_outdated(key, source) or self._state.pauses.until(source.deployment):
                raise Interrupted
            log.info("%s: %s: %s", key, type(action).__name__, action.reason, extra=fields)
            with self._interruptible(key):
                await reconciler.apply(action)

    def _is_outdated(self, key: Key, source: Desired[Score] | OwnershipRecord) -> bool:
        wanted = self._state.desired.get(key)
        return wanted is not (source if isinstance(source, Desired) else None)

    def interrupt(self, key: Key) -> None:
        """Cut a look or a step that is under way."""
        scope = self._under_way.get(key)
        if scope is not None:
            scope.cancel()

    @contextmanager
    def _interruptible(self, key: Key) -> Iterator[None]:
        with anyio.CancelScope() as scope:
            self._under_way[key] = scope
            try:
                yield
            finally:
                del self._under_way[key]
        if scope.cancelled_caught:
            raise Interrupted

    def wait(self, key: Key, hold: Hold) -> None:
        """Have the queue come back when the hold ends."""
        self._queue.wait_for(key, hold.waits_for)
        if hold.seconds is not None:
            (self._queue.hold if hold.backoff else self._queue.add)(key, hold.seconds)


def held(hold: Hold, detail: Detail | None = None, episode: Drift | None = None) -> Outcome:
    """The outcome of a pass that ends with a hold."""
    return Outcome(hold.phase, hold.reason, hold.message, detail, episode)
