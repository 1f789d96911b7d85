"""Foresee one pass over every resource, by the steps of `core.decide` in their order.

Observes, and acts on nothing. It changes the state that it is given: its ledger must keep nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import Final

from harmony_agent.core import claims, decide
from harmony_agent.core.changes import Moment, is_change
from harmony_agent.core.decide import Now, RetryState
from harmony_agent.core.errors import ResourceError, Transient
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, Key
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.core.steps import Claim, Execute, Hold, Settled, Step
from harmony_agent.engine.reconcile import cases
from harmony_agent.engine.reconcile.context import ReconcileContext
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance

_ROUNDS: Final = 3
"""Number of plans that may follow from claims."""


@frozen()
class Foreseen:
    """One resource and its next step. `after` names the needs that are worked on before it."""

    key: Key
    step: Step
    after: tuple[str, ...] = ()


class Rehearsal:
    """Foresees each step as if all steps before it succeed."""

    def __init__(
        self,
        state: DeviceState,
        kinds: Mapping[str, KindInstance],
        now: Callable[[], Now],
        moment: Callable[[], Moment],
    ) -> None:
        """`now` and `moment` tell the time of a decision and of a change."""
        self._state = state
        self._kinds = kinds
        self._now = now
        self._moment = moment
        self._changed: set[str] = set()
        self._freed: set[str] = set()
        """claims of what would be taken away"""

    async def run(self) -> list[Foreseen]:
        """Foresee everything that is wanted or owned; removals come first."""
        found = await self._removals(
            sorted(key for key in self._state.records if self._state.is_being_removed(key))
        )
        for key in _in_order(self._state.desired):
            desired = self._state.desired[key]
            step = await self._foresee(key, desired)
            found.append(
                Foreseen(key, step, tuple(need for need in desired.needs if need in self._changed))
            )
            await self._presume(key, desired, step)
        return found

    async def _removals(self, keys: list[Key]) -> list[Foreseen]:
        """Foresee removals. One that waits for another is tried again once that one would be gone."""
        found, waiting = [], []
        for key in keys:
            step = await self._remove(key)
            if isinstance(step, Hold) and step.waits_for:
                waiting.append(Foreseen(key, step))
                continue
            found.append(Foreseen(key, step))
            if isinstance(step, Execute):
                self._freed |= self._state.records[key].claims
            if not isinstance(step, Hold):
                await self._state.forget(key)
        again = [one.key for one in waiting]
        return found + (await self._removals(again) if 0 < len(again) < len(keys) else waiting)

    async def _remove(self, key: Key) -> Step:
        reconciler = self._kinds.get(key.kind)
        if reconciler is None:
            return decide.not_allowed(key.kind)
        step = cases.without_a_look(self._state, self._state.records[key])
        if step is not None:
            return step
        try:
            observed = await reconciler.observe(key.name)
            plan = reconciler.plan(key.name, None, self._state.records.get(key), observed)
        except ResourceError as error:
            return _failed(error)
        return decide.next_step(cases.leaving(self._state, key, plan, self._now()))

    async def _foresee(self, key: Key, desired: Desired) -> Step:  # type: ignore[type-arg]  # of any kind
        reconciler = self._kinds.get(key.kind)
        if reconciler is None:
            return decide.not_allowed(key.kind)
        refused = decide.refused(reconciler.admit(desired.spec))
        if refused is not None:
            return refused
        try:
            return await self._wanted(
                ReconcileContext(key, desired, reconciler, RetryState(desired.version))
            )
        except ResourceError as error:
            return _failed(error)

    async def _wanted(self, this: ReconcileContext) -> Step:
        step: Step = Claim()
        empty = not self._freed.isdisjoint(this.reconciler.claims(this.desired.spec))
        for _ in range(_ROUNDS):
            this.observed = None if empty else await this.reconciler.observe(this.key.name)
            this.record = self._state.records.get(this.key)
            plan = this.reconciler.plan(this.key.name, this.desired, this.record, this.observed)
            case = cases.wanted(self._state, this, plan, self._now())
            step = decide.next_step(case)
            if not isinstance(step, Claim):
                return step
            facts = this.reconciler.facts(this.desired, this.record, this.observed)
            others = claims.given_up(case, cases.taken(this)) if case.taken else []
            for record in (claims.claimed(case, facts), *others):
                self._state.records.write_later(record)
        return step

    async def _presume(self, key: Key, desired: Desired, step: Step) -> None:  # type: ignore[type-arg]  # of any kind
        """Presume that its actions succeed, to foresee those who need it."""
        if isinstance(step, Execute):
            self._changed.add(str(key))
            if is_change(step.plan) and key in self._state.records:
                await self._state.changed(self._state.records[key], self._moment())
        if isinstance(step, Execute | Settled):
            phase = step.phase if isinstance(step, Settled) else "Ready"
            status = resource_status(
                None, Outcome(phase), desired.generation, desired.digest, self._now().wire
            )
            self._state.set_status(key, desired.deployment, status)


def _in_order(desired: Mapping[Key, Desired]) -> Iterable[Key]:  # type: ignore[type-arg]  # of any kind
    """Needs before those that need them, else by name."""
    order: TopologicalSorter[Key] = TopologicalSorter()
    for key in sorted(desired):
        order.add(key, *(Key.parse(need) for need in sorted(desired[key].needs)))
    return [key for key in order.static_order() if key in desired]


def _failed(error: ResourceError) -> Hold:
    return Hold(error.phase if isinstance(error, Transient) else "Failed", error.reason, str(error))
