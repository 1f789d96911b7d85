"""One pass over one resource: observe, plan, own, act, look again. The same for every kind.

Every error ends in the resource's status; none leaves this module. Nothing is done to what isn't ours.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.order import in_the_way, outlives, unmet
from harmony_agent.core.reconcile import Act, Converged, Desired, Key, Plan, Record, Wait
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.book import Book
from harmony_agent.engine.pacing import Pacing
from harmony_agent.engine.parts import AnyReconciler, Memory, Pass, Prober, Times, Verdict
from harmony_agent.engine.queue import WorkQueue
from scores.status import ContainerDetail, Detail, ResourcePhase, ResourceStatus, UnitDetail

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
        self._times = times
        self._pacing = Pacing(book, queue, times)
        self._memory: dict[Key, Memory] = {}
        self._waiting: dict[str, set[Key]] = {}
        self.seen: dict[str, dict[str, Any]] = {kind: {} for kind in kinds}
        """kind -> name -> what was last observed; the relist compares with it"""

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
            self._say(key, desired, record, outcome)

    def _not_allowed(self, key: Key, desired: Desired[Any] | None, record: Record | None) -> None:
        """Accepted once, but the configuration was changed since: nothing can be done for it, not even removal."""
        if desired is not None or self._book.going(key):
            message = f"the configuration doesn't allow the kind {key.kind} any more: allow it, or take this out"
            self._say(key, desired, record, Outcome("Blocked", "KindNotAllowed", message))

    def _drop(self, key: Key) -> None:
        """Neither wanted nor ours: keep nothing of it in mind."""
        self._health.forget(key)
        self._memory.pop(key, None)
        self.seen[key.kind].pop(key.name, None)
        self.wake(str(key))

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
        this.observed = self._last_seen(this)
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
            halt = self._gate(this) or self._foreign(this, plan)
            if halt is not None:
                return halt
            if await self._claim(this, plan):
                look = this.reconciler.last_seen(this.key.name) is None
                continue  # what is recorded now may be part of what is to be done
            look = True
            outcome = await self._carry_out(this, plan)
            if outcome is not None:
                return outcome
        self._queue.add(this.key, 1.0)
        return Outcome("Progressing", "StillActing", "not as wanted yet; looking again", this.detail(), this.drift())

    def _last_seen(self, this: Pass) -> Any:
        """Enough to begin with for a new spec of what is ours: each change sees whether it still holds."""
        record = self._book.records.get(this.key)
        if record is None or record.spec_digest == this.desired.digest or not self._owns(this):
            return None
        return this.reconciler.last_seen(this.key.name)

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
            self._say(this.key, this.desired, None, Outcome("Progressing", detail=this.detail(), drift=this.drift()))

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

    def _gate(self, this: Pass) -> Outcome | None:
        """Pending where what it needs isn't settled, or where what leaves is in its way."""
        record = self._book.records.get(this.key)
        idle = this.reconciler.spec_type.restarts and not this.reconciler.instance(this.observed)
        if record is not None and record.applied == this.desired.version and not idle:
            return None
        waits = unmet(this.desired.spec.needs(), self._book.digests(), self._book.statuses)
        leaving = self._book.leaving(this.desired.deployment)
        if leaving:
            waits += in_the_way(this.reconciler.claims(this.desired.spec), this.key, leaving)
        return self._wait_for(this.key, waits, "Pending", this.detail())

    def _wait_for(self, key: Key, others: list[str], phase: ResourcePhase, detail: Detail | None) -> Outcome | None:
        for other in others:
            self._waiting.setdefault(other, set()).add(key)
        if not others:
            return None
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        return Outcome(phase, "WaitsFor", f"waits for {', '.join(others[:3])}{more}", detail)

    def _owns(self, this: Pass) -> bool:
        record = self._book.records.get(this.key)
        return record is not None and this.reconciler.claims(this.desired.spec) <= record.claims

    def _foreign(self, this: Pass, plan: Plan[Any]) -> Outcome | None:
        """Blocked where what is to be changed is somebody else's."""
        if not isinstance(plan, Act) or this.desired.spec.adopt or self._owns(this):
            return None
        disturbing = [action.reason for action in plan.actions if action.disturbs]
        if not disturbing:
            return None
        record = self._book.records.get(this.key)
        claims = this.reconciler.claims(this.desired.spec) - (record.claims if record else frozenset())
        what = ", ".join(sorted(claims))
        message = f"{what} exists, isn't ours and differs ({disturbing[0]}): take it away, or set adopt: true"
        return Outcome("Blocked", "OwnershipConflict", message, this.detail())

    async def _claim(self, this: Pass, plan: Plan[Any]) -> bool:
        """Record that it is ours before anything is done to it; whether the record changed what may be done."""
        record, desired, owned = self._book.records.get(this.key), this.desired, self._owns(this)
        if owned and record is not None and record.spec_digest == desired.digest:
            return False
        if not owned and isinstance(plan, Wait):
            return False
        facts = dict(this.reconciler.facts(this.key.name, desired, this.observed))
        new = Record(
            kind=this.key.kind,
            name=this.key.name,
            deployment=desired.deployment,
            spec_digest=desired.digest,
            generation=desired.generation,
            on_remove=desired.spec.on_remove,
            claims=this.reconciler.claims(desired.spec) | (record.claims if record else frozenset()),
            applied=record.applied if record else "",
            facts=facts,
            needs=desired.spec.needs(),
        )
        if owned and record is not None and record.facts == facts:
            self._book.write_later(new)  # it is ours already: nothing that a crash could make doubtful
            return False
        await self._book.write(new)
        return True

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
            first = outlives(record, self._book.leaving(record.deployment))
            waits = self._wait_for(key, first, "Removing", reconciler.detail(key.name, observed))
            if waits is not None:
                return waits
            if isinstance(plan, Wait):
                self._queue.add(key, plan.seconds)
                phase = "Removing" if plan.phase == "Progressing" else plan.phase
                return Outcome(phase, plan.reason, plan.message, reconciler.detail(key.name, observed))
            await self._act(key, record, plan, reconciler)
        self._queue.add(key, 1.0)
        return Outcome("Removing", detail=reconciler.detail(key.name, observed))

    async def _gone(self, key: Key) -> None:
        await self._book.forget(key)
        if key in self._book.desired:  # wanted again meanwhile, and queued
            self.wake(str(key))
        else:
            self._drop(key)

    # -- how it ended

    def _say(self, key: Key, desired: Desired[Any] | None, record: Record | None, outcome: Outcome) -> None:
        """Write the outcome into the book, and wake those who waited for it."""
        if self._book.desired.get(key) is not desired:
            return  # it is about a spec that isn't wanted any more; the newer one is queued
        source = desired or record
        if source is None:
            return
        digest = desired.digest if desired else record.spec_digest if record else ""
        old, kind = self._book.statuses.get(key), self._kinds.get(key.kind)
        bad = outcome.detail is None and outcome.phase in ("Degraded", "Blocked", "Failed")
        if bad and old is not None and kind is not None:
            outcome = replace(outcome, detail=kind.detail(key.name, self.seen[key.kind].get(key.name)))
        status = resource_status(old, outcome, source.generation, digest, self._times.wire_now())
        log_change(key, source.deployment, old, status)
        if self._book.set_status(key, source.deployment, status):
            self.wake(str(key))

    def wake(self, other: str) -> None:
        """`other` settled or is gone: whoever waited for it may go on."""
        for key in self._waiting.pop(other, ()):
            self._queue.add(key)


def _with_ready(detail: Detail | None, *, ready: bool) -> Detail | None:
    """The detail with what the probes say: running is not yet ready."""
    if ready or not isinstance(detail, UnitDetail | ContainerDetail):
        return detail
    return detail.model_copy(update={"ready": False})


def log_change(key: Key, deployment: str, old: ResourceStatus | None, new: ResourceStatus) -> None:
    """Say that a resource is otherwise than before."""
    if old is None or (old.phase, old.reason) != (new.phase, new.reason):
        fields = {
            "resource": str(key),
            "deployment": deployment,
            "generation": new.generation,
            "reason": new.reason or None,
        }
        text = f" {new.reason}: {new.message}" if new.reason else ""
        level = logging.WARNING if new.phase in ("Degraded", "Failed", "Blocked", "Unknown") else logging.INFO
        log.log(level, "%s is %s%s", key, new.phase, text, extra=fields)
