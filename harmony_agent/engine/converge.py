"""One pass over one resource: observe, plan, own, act, look again. The same for every kind.

Every error ends in the resource's status; none leaves this module. Nothing is done to what isn't ours (`ownership`),
nor before its turn (`dependencies`, `pacing`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.reconcile import Act, Converged, Desired, Key, Plan, Record, Wait
from harmony_agent.core.status import Outcome
from harmony_agent.engine.book import Book
from harmony_agent.engine.dependencies import Dependencies
from harmony_agent.engine.outcomes import Outcomes
from harmony_agent.engine.ownership import Ownership
from harmony_agent.engine.pacing import Pacing
from harmony_agent.engine.parts import AnyReconciler, Memory, Pass, Prober, Times, Verdict
from harmony_agent.engine.queue import WorkQueue
from scores.status import ContainerDetail, Detail, ResourcePhase, UnitDetail

log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""How often one pass acts and looks again before it gives way to others."""


class Converger:
    """Works on keys, one pass at a time; `engine` calls it from the queue."""

    def __init__(
        self, book: Book, kinds: Mapping[str, AnyReconciler], queue: WorkQueue, times: Times, *, health: Prober
    ) -> None:
        self._health = health
        self._book = book
        self._kinds = kinds
        self._queue = queue
        self._pacing = Pacing(book, queue, times)
        self._ownership = Ownership(book)
        self._dependencies = Dependencies(book, queue)
        self._memory: dict[Key, Memory] = {}
        self.seen: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        """kind -> name -> what was last observed; the relist compares with it"""
        self._outcomes = Outcomes(book, kinds, self.seen, times, self._dependencies.wake)

    async def work(self, key: Key) -> None:
        """Bring `key` a pass nearer to what is wanted, and say how it is."""
        reconciler = self._kinds.get(key.kind)
        desired = self._book.desired.get(key)
        record = self._book.records.get(key)
        if reconciler is None:
            self._not_allowed(key, desired, record)
            return
        if desired is None and not self._book.going(key):
            reconciler.done(key.name)
            self._drop(key)
            return
        memory = self._remember(key, desired)
        try:
            if desired is None:
                outcome = await self._remove(key, record, reconciler)
            else:
                outcome = await self._converge(Pass(key, desired, reconciler, memory))
            memory.tries = 0
        except ResourceError as error:
            outcome = self._pacing.failed(key, memory, error)
        except Exception as error:  # a defect of ours must not stop the other resources
            outcome = self._pacing.defect(key, memory, error)
        finally:
            reconciler.done(key.name)
        if outcome is not None:
            self._outcomes.say(key, desired, record, outcome)

    def _not_allowed(self, key: Key, desired: Desired[Any] | None, record: Record | None) -> None:
        """Accepted once, but the configuration was changed since: nothing can be done for it, not even removal."""
        if desired is not None or self._book.going(key):
            message = f"the configuration doesn't allow the kind {key.kind} any more: allow it, or take this out"
            self._outcomes.say(key, desired, record, Outcome("Blocked", "KindNotAllowed", message))

    def _drop(self, key: Key) -> None:
        """Neither wanted nor ours: keep nothing of it in mind."""
        self._health.forget(key)
        self._memory.pop(key, None)
        self.seen[key.kind].pop(key.name, None)
        self._dependencies.wake(str(key))

    def _remember(self, key: Key, desired: Desired[Any] | None) -> Memory:
        """The key's memory, begun anew with another spec."""
        version = desired.version if desired else ""
        memory = self._memory.get(key)
        if memory is None or memory.version != version:
            memory = self._memory[key] = Memory(version)
        return memory

    # -- wanted

    async def _converge(self, this: Pass) -> Outcome | None:
        """Observe, plan, own and act until there is nothing to do; None where a newer spec took over."""
        refused = next(iter(this.reconciler.admit(this.desired.spec)), None)
        if refused is not None:
            message = f"the configuration doesn't allow its {refused.field} any more: allow it, or take this out"
            return Outcome("Blocked", refused.code, message)
        if this.memory.failed is not None:
            return this.memory.failed
        this.observed = self._ownership.last_seen(this)
        recalled = this.observed is not None
        look = not recalled
        for _ in range(ROUNDS):
            if look:
                this.observed = await self._observe(this.key, this.reconciler)
            if self._book.desired.get(this.key) is not this.desired:
                return None
            plan = this.reconciler.plan(this.key.name, this.desired, this.observed)
            if recalled and not isinstance(plan, Act):  # only what is changed is seen again as it is changed
                recalled, look = False, True
                continue
            recalled = False
            halt = self._dependencies.gate(this) or self._ownership.conflict(this, plan)
            if halt is not None:
                return halt
            if await self._ownership.claim(this, plan):
                look = this.reconciler.last_seen(this.key.name) is None
                continue  # what is recorded now may be part of what is to be done
            look = True
            outcome = await self._carry_out(this, plan)
            if outcome is not None:
                return outcome
        self._queue.add(this.key, 1.0)
        return Outcome("Progressing", "StillActing", "not as wanted yet; looking again", this.detail(), this.drift())

    async def _carry_out(self, this: Pass, plan: Plan[Any]) -> Outcome | None:
        """Do what the plan says; None where something was done and another look is due."""
        if isinstance(plan, Wait):
            self._queue.add(this.key, plan.seconds)
            return Outcome(plan.phase, plan.reason, plan.message, this.detail(), this.drift())
        if isinstance(plan, Converged):
            return await self._judge_health(this, plan)
        halt = self._pacing.hold_back(this, plan)
        if halt is None:
            self._known(this)
            await self._act(this.key, this.desired, plan, this.reconciler)
        elif halt.reason == "DriftReported":
            return await self._report(this, halt)
        return halt

    def _known(self, this: Pass) -> None:
        """It was looked at and is worked on, which may take long: Unknown is not what it is meanwhile."""
        old = self._book.statuses.get(this.key)
        if old is not None and old.phase == "Unknown":
            self._outcomes.say(
                this.key, this.desired, None, Outcome("Progressing", detail=this.detail(), drift=this.drift())
            )

    async def _report(self, this: Pass, halt: Outcome) -> Outcome | None:
        """What differs stays so; but whether it works is no drift, and what doesn't live is restarted as it is."""
        verdict = self._track(this)
        return halt if verdict.alive else await self._revive(this, verdict)

    async def _observe(self, key: Key, reconciler: AnyReconciler) -> Any:
        observed = await reconciler.observe(key.name)
        if observed is None:
            self.seen[key.kind].pop(key.name, None)
        else:
            self.seen[key.kind][key.name] = observed
        return observed

    async def _act(self, key: Key, source: Desired[Any] | Record, plan: Act[Any], reconciler: AnyReconciler) -> None:
        fields = {"resource": str(key), "deployment": source.deployment, "generation": source.generation}
        for action in plan.actions:
            log.info("%s: %s: %s", key, type(action).__name__, action.reason, extra=fields)
            await reconciler.apply(action)

    async def _judge_health(self, this: Pass, plan: Converged) -> Outcome | None:
        """It is as wanted: say whether it works, too. None where it was restarted because it does not."""
        record, verdict = self._book.records[this.key], self._track(this)
        if not verdict.alive:
            return await self._revive(this, verdict)
        instance = this.reconciler.instance(this.observed)
        claims = this.reconciler.claims(this.desired.spec)
        ready = instance if verdict.ready else ""
        self._book.write_later(replace(record, applied=this.desired.version, claims=claims, ready=ready))
        detail = _with_ready(this.detail(), ready=verdict.ready)
        if verdict.ready:
            return Outcome(plan.phase, detail=detail, drift=this.drift())
        phase: ResourcePhase = "Degraded" if verdict.was_ready else "Progressing"
        return Outcome(phase, "NotReady", f"its readiness probe fails: {verdict.why or 'no result yet'}", detail)

    def _track(self, this: Pass) -> Verdict:
        """What the probes of what runs now say until now."""
        instance = this.reconciler.instance(this.observed)
        before = bool(instance) and self._book.records[this.key].ready == instance
        return self._health.track(this.key, this.desired.spec, instance, ready_before=before)

    async def _revive(self, this: Pass, verdict: Verdict) -> Outcome | None:
        why = f"its liveness probe fails: {verdict.why}"
        held = None if this.acted else self._pacing.crash(this, why)
        if held is not None:
            return replace(held, reason="LivenessFailed", drift=this.drift())
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

    async def _remove(self, key: Key, record: Record | None, reconciler: AnyReconciler) -> Outcome | None:
        """Take off what the ledger says is ours, or let it go."""
        if record is None or record.on_remove == "orphan":
            if record is not None:
                await reconciler.let_go(key.name)
            await self._gone(key)
            return None
        observed = None
        for _ in range(ROUNDS):
            observed = await self._observe(key, reconciler)
            if key in self._book.desired:
                return None
            plan = reconciler.plan(key.name, None, observed)
            if isinstance(plan, Converged):
                await self._gone(key)
                return None
            # After the look, not before: what went away meanwhile would never wake this.
            detail = reconciler.detail(key.name, observed)
            waits = self._dependencies.gate_removal(key, record, detail)
            if waits is not None:
                return waits
            if isinstance(plan, Wait):
                self._queue.add(key, plan.seconds)
                phase = "Removing" if plan.phase == "Progressing" else plan.phase
                return Outcome(phase, plan.reason, plan.message, detail)
            if await self._begin_to_undo(key):
                await self._act(key, record, plan, reconciler)
        self._queue.add(key, 1.0)
        return Outcome("Removing", detail=reconciler.detail(key.name, observed))

    async def _begin_to_undo(self, key: Key) -> bool:
        """Have the ledger say so first; False where it was wanted again while that was written."""
        record = self._book.records[key]
        undoing = record.undoing()
        if undoing is not record:
            await self._book.write(undoing)
        return key not in self._book.desired

    async def _gone(self, key: Key) -> None:
        await self._book.forget(key)
        if key in self._book.desired:  # wanted again meanwhile, and queued
            self._dependencies.wake(str(key))
        else:
            self._drop(key)


def _with_ready(detail: Detail | None, *, ready: bool) -> Detail | None:
    """The detail with what the probes say: running is not yet ready."""
    if ready or not isinstance(detail, UnitDetail | ContainerDetail):
        return detail
    return detail.model_copy(update={"ready": False})
