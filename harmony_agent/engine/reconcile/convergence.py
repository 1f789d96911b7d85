"""One pass over a resource that is wanted: observe, plan, decide, carry out, look again.

`core.decide` decides; this module carries out.
"""

from __future__ import annotations

from dataclasses import replace

from harmony_agent.core import claims, decide
from harmony_agent.core.actions import Act, Action
from harmony_agent.core.changes import is_change
from harmony_agent.core.decide import DecisionInput
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Claim, Execute, Hold, Report, Settled, Step
from harmony_agent.engine.reconcile import cases
from harmony_agent.engine.reconcile.context import ReconcileContext
from harmony_agent.engine.reconcile.judge_health import HealthJudge
from harmony_agent.engine.reconcile.pacing import Pacing
from harmony_agent.engine.reconcile.record_status import StatusRecorder
from harmony_agent.engine.reconcile.steps import ROUNDS, Steps, held
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState


class Convergence:
    """Brings what is wanted about."""

    def __init__(
        self,
        state: DeviceState,
        queue: WorkQueue,
        pacing: Pacing,
        steps: Steps,
        *,
        judge: HealthJudge,
        outcomes: StatusRecorder,
    ) -> None:
        self._state = state
        self._queue = queue
        self._pacing = pacing
        self._steps = steps
        self._judge = judge
        self._outcomes = outcomes

    async def converge(self, this: ReconcileContext) -> Outcome | None:
        """Observe, plan, decide and act until there is nothing to do; None where a newer spec took
        over.
        """
        refused = decide.refused(this.reconciler.admit(this.desired.spec))
        if refused is not None:
            return held(refused)
        if this.memory.failed is not None:
            return this.memory.failed
        this.observed = self._cached(this)
        recalled = this.observed is not None
        look = not recalled
        for _ in range(ROUNDS):
            if look:
                this.observed = await self._steps.observe(this.key, this.reconciler)
            if self._state.desired.get(this.key) is not this.desired:
                return None
            this.record = self._state.records.get(this.key)
            plan = this.reconciler.plan(this.key.name, this.desired, this.record, this.observed)
            if recalled and not isinstance(plan, Act):
                # Only a change sees anew what it changes. All else needs a look.
                recalled, look = False, True
                continue
            recalled = False
            case = cases.wanted(self._state, this, plan, self._pacing.now())
            step = decide.next_step(case)
            if isinstance(step, Claim):
                busy = self._state.records.turns.busy([record.key for record in case.taken])
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
        this.record = self._state.records.get(this.key)
        return self._pacing.still_acting(this)

    def _cached(self, this: ReconcileContext) -> object | None:
        """Recall enough to begin with, for a new spec of what is ours.

        Each change checks that this still holds.
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
        facts = this.reconciler.facts(this.desired, case.record, this.observed)
        new = claims.claimed(case, facts)
        same = case.record is not None and case.record.facts == new.facts
        if case.owned and same and not case.taken:
            self._state.records.write_later(new)
            return False
        if not case.taken:
            await self._state.records.write(new)
            return True
        others = claims.given_up(case, cases.taken(this))
        if await self._state.records.write_together(new, others):
            for other in others:
                self._queue.add(other.key)
        return True

    async def _carry_out(self, this: ReconcileContext, step: Step) -> Outcome | None:
        """Do what was decided; None where something was done and another look is due."""
        match step:
            case Hold():
                return self._hold(this, step)
            case Settled():
                self._pacing.look_again(this.key, step.again)
                return self._judged(this, await self._judge.settle(this, step))
            case Report():
                this.memory.episode = step.episode
                return self._judged(this, await self._judge.drifted(this, step.message))
            case Execute(plan=plan):
                self._pacing.count(this, step)
                self._known(this)
                await self._begin_to_change(this, plan)
                await self._steps.act(this.key, this.desired, plan, this.reconciler)
                self._pacing.done(step)
                return None
            case _:  # not of a wanted resource whose record is current
                raise AssertionError(f"cannot carry out {step} for {this.key}")

    async def _begin_to_change(self, this: ReconcileContext, plan: Act[Action]) -> None:
        """Have the ledger say first that others are to restart, where others follow it."""
        if not is_change(plan):
            return
        this.memory.changed = True
        record = self._state.records[this.key]
        if not record.changing and self._state.is_followed(this.key):
            await self._state.records.write(replace(record, changing=True))

    def _judged(self, this: ReconcileContext, found: Outcome | Hold | None) -> Outcome | None:
        return self._hold(this, found) if isinstance(found, Hold) else found

    def _hold(self, this: ReconcileContext, hold: Hold) -> Outcome:
        self._steps.wait(this.key, hold)
        if hold.episode is not None:
            this.memory.episode = hold.episode
        return held(hold, this.detail(), this.drift())

    def _known(self, this: ReconcileContext) -> None:
        """Show as Progressing what was Unknown: it was looked at, and work on it may take long."""
        old = self._state.statuses.get(this.key)
        if old is not None and old.phase == "Unknown":
            outcome = Outcome("Progressing", detail=this.detail(), drift=this.drift())
            self._outcomes.record_status(this.key, this.desired, None, outcome)
