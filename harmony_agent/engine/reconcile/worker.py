"""One pass over one resource: observe, plan, decide, carry out, look again. The same for every
kind.

`core.decide` decides; this module carries out. Every error ends in the resource's status; none
leaves this module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from harmony_agent.core import claims, decide
from harmony_agent.core.actions import Act
from harmony_agent.core.decide import (
    Claim,
    DecisionInput,
    Execute,
    Gone,
    Hold,
    Release,
    Report,
    RetryState,
    Settled,
    Step,
)
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from harmony_agent.engine.context import HealthTracker, HealthVerdict, ReconcileContext, Times
from harmony_agent.engine.kind_instance import KindInstance
from harmony_agent.engine.reconcile import cases
from harmony_agent.engine.reconcile.dependencies import Dependencies
from harmony_agent.engine.reconcile.pacing import Pacing
from harmony_agent.engine.reconcile.record_status import StatusRecorder
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState
from scores.status import ContainerDetail, Detail, Drift, ResourcePhase, UnitDetail

log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""Number of rounds of one pass before it gives way to others."""


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
        self._pacing = Pacing(queue, times)
        self._dependencies = Dependencies(queue)
        self._memory: dict[Key, RetryState] = {}
        self.seen: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        """kind -> name -> what was last observed; the relist compares with it"""
        self._outcomes = StatusRecorder(state, kinds, self.seen, times, self._dependencies.wake)

    async def work(self, key: Key) -> None:
        """Bring `key` a pass nearer to what is wanted, and say how it is."""
        await self._state.turns.begin(key)
        try:
            await self._work(key)
        finally:
            self._state.turns.end(key)

    async def _work(self, key: Key) -> None:
        reconciler = self._kinds.get(key.kind)
        desired = self._state.desired.get(key)
        record = self._state.records.get(key)
        if reconciler is None:
            if desired is not None or self._state.is_being_removed(key):
                self._outcomes.record_status(
                    key, desired, record, _outcome(decide.not_allowed(key.kind))
                )
            return
        if desired is None and not self._state.is_being_removed(key):
            reconciler.batch_end(key.name)
            self._drop(key)
            return
        memory = self._remember(key, desired)
        try:
            if desired is None:
                outcome = await self._remove(key, record, reconciler)
            else:
                outcome = await self._converge(ReconcileContext(key, desired, reconciler, memory))
            if outcome is None or outcome.reason != "StillActing":
                memory.tries = 0
        except ResourceError as error:
            outcome = self._pacing.failed(key, memory, error)
        except Exception as error:  # a defect of ours must not stop the other resources
            outcome = self._pacing.defect(key, memory, error)
        finally:
            reconciler.batch_end(key.name)
        if outcome is not None:
            self._outcomes.record_status(key, desired, record, outcome)

    def _drop(self, key: Key) -> None:
        """Neither wanted nor ours: keep nothing of it in mind."""
        self._health.forget(key)
        self._memory.pop(key, None)
        self.seen[key.kind].pop(key.name, None)
        self._dependencies.wake(str(key))

    def _remember(self, key: Key, desired: Desired[Any] | None) -> RetryState:
        """The key's memory, begun anew with another spec."""
        version = desired.version if desired else ""
        memory = self._memory.get(key)
        if memory is None or memory.version != version:
            memory = self._memory[key] = RetryState(version)
        return memory

    # -- wanted

    async def _converge(self, this: ReconcileContext) -> Outcome | None:
        """Observe, plan, decide and act until there is nothing to do; None where a newer spec took
        over.
        """
        refused = decide.refused(this.reconciler.admit(this.desired.spec))
        if refused is not None:
            return _outcome(refused)
        if this.memory.failed is not None:
            return this.memory.failed
        this.observed = self._cached(this)
        recalled = this.observed is not None
        look = not recalled
        for _ in range(ROUNDS):
            if look:
                this.observed = await self._observe(this.key, this.reconciler)
            if self._state.desired.get(this.key) is not this.desired:
                return None
            plan = this.reconciler.plan(this.key.name, this.desired, this.observed)
            if recalled and not isinstance(
                plan, Act
            ):  # only what is changed is seen again as it is changed
                recalled, look = False, True
                continue
            recalled = False
            case = cases.wanted(self._state, this, plan, self._pacing.now())
            step = decide.next_step(case)
            if isinstance(step, Claim):
                busy = self._state.turns.busy([record.key for record in case.taken])
                if busy:
                    return self._hold(this, claims.taking(busy))
                if await self._claim(this, case):
                    look = this.reconciler.cached(this.key.name) is None
                    continue  # what is recorded now may be part of what is to be done
                step = decide.next_step(replace(case, record=self._state.records[this.key]))
            look = True
            outcome = await self._carry_out(this, step)
            if outcome is not None:
                return outcome
        return self._pacing.still_acting(this)

    def _cached(self, this: ReconcileContext) -> Any:
        """Enough to begin with for a new spec of what is ours: each change sees whether it still
        holds.
        """
        record = self._state.records.get(this.key)
        if record is None or record.spec_digest == this.desired.digest:
            return None
        if not this.reconciler.claims(this.desired.spec) <= record.claims:
            return None
        return this.reconciler.cached(this.key.name)

    async def _claim(self, this: ReconcileContext, case: DecisionInput) -> bool:
        """Write the record; False where it changes nothing that could be done, so that it may be
        durable later.
        """
        facts = this.reconciler.facts(this.key.name, this.desired, this.observed)
        new = claims.claimed(case, facts)
        same = case.record is not None and case.record.facts == new.facts
        if case.owned and same and not case.taken:
            self._state.write_later(new)
            return False
        if not case.taken:
            await self._state.write(new)
            return True
        others = claims.given_up(case, cases.taken(this))
        if await self._state.write_together(new, others):
            for other in others:
                self._queue.add(other.key)
        return True

    async def _carry_out(self, this: ReconcileContext, step: Step) -> Outcome | None:
        """Do what was decided; None where something was done and another look is due."""
        match step:
            case Hold():
                return self._hold(this, step)
            case Settled():
                return await self._judge_health(this, step)
            case Report():
                return await self._report(this, step)
            case Execute(plan=plan):
                self._pacing.count(this, step)
                self._known(this)
                await self._act(this.key, this.desired, plan, this.reconciler)
                self._pacing.done(step)
                return None
            case _:  # not of a wanted resource whose record is current
                raise AssertionError(f"cannot carry out {step} for {this.key}")

    def _hold(self, this: ReconcileContext, hold: Hold) -> Outcome:
        self._wait(this.key, hold)
        if hold.episode is not None:
            this.memory.episode = hold.episode
        return _outcome(hold, this.detail(), this.drift())

    def _wait(self, key: Key, hold: Hold) -> None:
        """Have the queue come back when the hold ends."""
        self._dependencies.wait_for(key, hold.waits_for)
        if hold.seconds is not None:
            (self._queue.hold if hold.backoff else self._queue.add)(key, hold.seconds)

    def _known(self, this: ReconcileContext) -> None:
        """It was looked at and is worked on, which may take long: Unknown is not what it is
        meanwhile.
        """
        old = self._state.statuses.get(this.key)
        if old is not None and old.phase == "Unknown":
            self._outcomes.record_status(
                this.key,
                this.desired,
                None,
                Outcome("Progressing", detail=this.detail(), drift=this.drift()),
            )

    async def _report(self, this: ReconcileContext, report: Report) -> Outcome | None:
        """Report a difference and leave it.

        Health is not drift: a dead process is restarted as it is.
        """
        this.memory.episode = report.episode
        verdict = self._track(this)
        if not verdict.alive:
            return await self._revive(this, verdict)
        return Outcome("Degraded", "DriftReported", report.message, this.detail(), this.drift())

    async def _observe(self, key: Key, reconciler: KindInstance) -> Any:
        observed = await reconciler.observe(key.name)
        if observed is None:
            self.seen[key.kind].pop(key.name, None)
        else:
            self.seen[key.kind][key.name] = observed
        return observed

    async def _act(
        self,
        key: Key,
        source: Desired[Any] | OwnershipRecord,
        plan: Act[Any],
        reconciler: KindInstance,
    ) -> None:
        fields = {
            "resource": str(key),
            "deployment": source.deployment,
            "generation": source.generation,
        }
        for action in plan.actions:
            log.info("%s: %s: %s", key, type(action).__name__, action.reason, extra=fields)
            await reconciler.apply(action)

    async def _judge_health(self, this: ReconcileContext, settled: Settled) -> Outcome | None:
        """It is as wanted: say whether it works, too. None where it was restarted because it does
        not.
        """
        record, verdict = self._state.records[this.key], self._track(this)
        if not verdict.alive:
            return await self._revive(this, verdict)
        instance = this.reconciler.instance(this.observed)
        held = this.reconciler.claims(this.desired.spec) | settled.holds
        ready = instance if verdict.ready else ""
        self._state.write_later(
            replace(record, applied=this.desired.version, claims=held, ready=ready)
        )
        detail = _with_ready(this.detail(), ready=verdict.ready)
        if verdict.ready:
            return Outcome(settled.phase, detail=detail, drift=this.drift())
        phase: ResourcePhase = "Degraded" if verdict.was_ready else "Progressing"
        return Outcome(
            phase,
            "NotReady",
            f"its readiness probe fails: {verdict.why or 'no result yet'}",
            detail,
        )

    def _track(self, this: ReconcileContext) -> HealthVerdict:
        """Read the probes' results for the current run."""
        instance = this.reconciler.instance(this.observed)
        before = bool(instance) and self._state.records[this.key].ready == instance
        return self._health.track(this.key, this.desired.spec, instance, ready_before=before)

    async def _revive(self, this: ReconcileContext, verdict: HealthVerdict) -> Outcome | None:
        why = f"its liveness probe fails: {verdict.why}"
        wait = 0.0 if this.acted else self._pacing.start(this.memory)
        if wait > 0:
            return self._hold(this, replace(decide.crash_loop(why, wait), reason="LivenessFailed"))
        this.acted = True
        fields = {
            "resource": str(this.key),
            "deployment": this.desired.deployment,
            "generation": this.desired.generation,
            "reason": "LivenessFailed",
        }
        log.warning("%s: restart: %s", this.key, why, extra=fields)
        self._health.forget(this.key)
        await this.reconciler.restart(this.key.name)
        return None

    # -- not wanted

    async def _remove(
        self, key: Key, record: OwnershipRecord | None, reconciler: KindInstance
    ) -> Outcome | None:
        """Take off what the ledger says is ours, or release it."""
        step: Step | None = decide.without_a_look(record)
        observed = None
        for _ in range(ROUNDS):
            if step is None:
                observed = await self._observe(key, reconciler)
                if key in self._state.desired:
                    return None
                plan = reconciler.plan(key.name, None, observed)
                step = decide.next_step(cases.leaving(self._state, key, plan, self._pacing.now()))
            match step:
                case Gone() | Release():
                    if isinstance(step, Release):
                        await reconciler.release(key.name)
                    await self._gone(key)
                    return None
                case Hold():
                    self._wait(key, step)
                    return _outcome(step, reconciler.detail(key.name, observed))
                case Execute():
                    if record is not None and await self._begin_to_undo(key):
                        await self._act(key, record, step.plan, reconciler)
            step = None
        self._pacing.hold_still_acting(key, self._memory[key])
        detail = reconciler.detail(key.name, observed)
        return Outcome("Removing", "StillActing", "not gone yet; looking again", detail)

    async def _begin_to_undo(self, key: Key) -> bool:
        """Have the ledger say so first; False where it was wanted again while that was written."""
        record = self._state.records[key]
        undoing = record.undoing()
        if undoing is not record:
            await self._state.write(undoing)
        return key not in self._state.desired

    async def _gone(self, key: Key) -> None:
        await self._state.forget(key)
        if key in self._state.desired:  # wanted again meanwhile, and queued
            self._dependencies.wake(str(key))
        else:
            self._drop(key)


def _outcome(hold: Hold, detail: Detail | None = None, episode: Drift | None = None) -> Outcome:
    return Outcome(hold.phase, hold.reason, hold.message, detail, episode)


def _with_ready(detail: Detail | None, *, ready: bool) -> Detail | None:
    """The detail with what the probes say: running is not yet ready."""
    if ready or not isinstance(detail, UnitDetail | ContainerDetail):
        return detail
    return detail.model_copy(update={"ready": False})
