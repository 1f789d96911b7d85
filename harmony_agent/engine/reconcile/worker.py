"""One pass over one resource, of whatever kind, wanted or not.

Every error ends in the resource's status; none leaves this module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from harmony_agent.core import decide
from harmony_agent.core.decide import RetryState
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Desired, Key
from harmony_agent.engine.reconcile.context import HealthTracker, ReconcileContext, Times
from harmony_agent.engine.reconcile.convergence import Convergence
from harmony_agent.engine.reconcile.judge_health import HealthJudge
from harmony_agent.engine.reconcile.pacing import Pacing
from harmony_agent.engine.reconcile.record_status import StatusRecorder
from harmony_agent.engine.reconcile.removal import Removal
from harmony_agent.engine.reconcile.steps import Interrupted, Steps, held
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from scores.base import Score

log = logging.getLogger(__name__)


class Worker:
    """Works on keys, one pass at a time; `engine` calls it from the queue."""

    def __init__(
        self,
        state: DeviceState,
        kinds: Mapping[str, KindInstance],
        queue: WorkQueue,
        times: Times,
        *,
        health: HealthTracker,
    ) -> None:
        self._health = health
        self._state = state
        self._kinds = kinds
        self._queue = queue
        self._memory: dict[Key, RetryState] = {}
        self._about: dict[Key, Desired[Score] | None] = {}
        """the spec of each pass under way; None: it takes the resource off"""
        self._pacing = pacing = Pacing(queue, times)
        self._steps = steps = Steps(state, kinds, queue)
        self.seen = steps.seen
        self._outcomes = outcomes = StatusRecorder(state, kinds, steps.seen, times, queue.wake)
        judge = HealthJudge(state, health, pacing, queue)
        self._convergence = Convergence(state, queue, pacing, steps, judge=judge, outcomes=outcomes)
        self._removal = Removal(state, pacing, steps, self._gone)

    def interrupt(self, key: Key) -> None:
        """Cut a pass that is about an older spec of `key`; the queue has the next."""
        if self._about.get(key) is not self._state.desired.get(key):
            self._steps.interrupt(key)

    async def work(self, key: Key) -> None:
        """Bring `key` a pass nearer to what is wanted, and say how it is."""
        await self._state.records.turns.begin(key)
        try:
            await self._work(key)
        finally:
            self._state.records.turns.end(key)

    async def _work(self, key: Key) -> None:
        reconciler = self._kinds.get(key.kind)
        desired = self._state.desired.get(key)
        leaving = desired is None and self._state.is_being_removed(key)
        if reconciler is None:
            if desired is not None or leaving:
                record = self._state.records.get(key)
                outcome = held(decide.not_allowed(key.kind))
                self._outcomes.record_status(key, desired, record, outcome)
        elif desired is None and not leaving:
            reconciler.batch_end(key.name)
            self._drop(key)
        else:
            await self._pass(key, desired, reconciler)

    async def _pass(
        self, key: Key, desired: Desired[Score] | None, reconciler: KindInstance
    ) -> None:
        record, memory = self._state.records.get(key), self._remember(key, desired)
        self._about[key] = desired
        try:
            if desired is None:
                outcome = await self._removal.remove(key, record, reconciler, memory)
            else:
                this = ReconcileContext(key, desired, reconciler, memory)
                outcome = await self._convergence.converge(this)
            if outcome is None or outcome.reason != "StillActing":
                memory.tries = 0
        except Interrupted:
            log.info(
                "%s: cut short: another is wanted, or it is paused",
                key,
                extra={"resource": str(key)},
            )
            outcome = None
        except ResourceError as error:
            outcome = self._pacing.failed(key, memory, error)
        except Exception as error:  # a defect of ours must not stop the other resources
            outcome = self._pacing.defect(key, memory, error)
        finally:
            del self._about[key]
            reconciler.batch_end(key.name)
        if outcome is not None:
            self._outcomes.record_status(key, desired, record, outcome)

    def _gone(self, key: Key) -> None:
        if key in self._state.desired:  # wanted again meanwhile, and queued
            self._queue.wake(str(key))
        else:
            self._drop(key)

    def _drop(self, key: Key) -> None:
        """Keep nothing in memory of what is neither wanted nor ours."""
        self._health.forget(key)
        self._memory.pop(key, None)
        self._steps.forget(key)
        self._queue.wake(str(key))

    def _remember(self, key: Key, desired: Desired[Score] | None) -> RetryState:
        """The key's memory, begun anew with another spec."""
        version = desired.version if desired else ""
        memory = self._memory.get(key)
        if memory is None or memory.version != version:
            memory = self._memory[key] = RetryState(version)
        return memory
