"""The engine's pass over one resource, without loops, time or a ledger: for the unit and contract
tests of a kind.

`core.decide` decides here as it does in the agent. All that others need is Ready here, and nothing
is ever contended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harmony_agent.core import claims, decide
from harmony_agent.core.actions import Act, Converged, Plan, Wait
from harmony_agent.core.decide import DecisionInput, Now, Others, RetryState
from harmony_agent.core.resources import Desired, Key
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.core.steps import Claim, Execute, Gone, Hold, Release, Report, Settled, Step
from harmony_agent.engine.state.kind_instance import KindInstance
from tests.fakes.store import FakeStore

ROUNDS = 7
"""Rounds of one pass: one for the claim, and as many as the engine has."""
NOW = Now(0.0, "2026-01-01T00:00:00.000Z")


@dataclass
class Pass:
    """What a pass did: the last plan (a Hold as a Wait), the actions taken, the fields named."""

    plan: Plan[Any]
    actions: list[Any] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)


class Cut(BaseException):
    """The agent is killed here. Raised by tests from `before`; no handler may catch it."""


async def run(
    kind: Any, store: FakeStore, name: str, before: Callable[[Any], None] = lambda _action: None
) -> Pass:
    """One pass over `name`. `before` is called ahead of each action, and may raise Cut to play a
    SIGKILL.
    """
    kind = kind if isinstance(kind, KindInstance) else KindInstance(kind)
    kind.batch_begin([name])
    try:
        return await _Driver(kind, store, name, before).work()
    finally:
        kind.batch_end(name)


class _Driver:
    """One pass: looks, decides, and carries out."""

    def __init__(
        self, kind: KindInstance, store: FakeStore, name: str, before: Callable[[Any], None]
    ) -> None:
        self.kind, self.store, self.name, self.before = kind, store, name, before
        self.desired = store.desired(name)
        self.memory = RetryState(self.desired.version if self.desired is not None else "")
        self.restarted: tuple[type[Any], ...] = ()
        self.acted = False
        self.done = Pass(Converged())

    async def work(self) -> Pass:
        if self.desired is None:
            step = decide.without_a_look(self.store.record(self.name))
            if step is not None:
                await self._carry_out(step, None)
                return self.done
        for _ in range(ROUNDS):
            observed = await self.kind.observe(self.name)
            self.done.plan = self.kind.plan(
                self.name, self.desired, self.store.record(self.name), observed
            )
            case = self._case(observed)
            if not await self._carry_out(decide.next_step(case), case, observed):
                break
        return self.done

    def _case(self, observed: Any) -> DecisionInput:
        key, record = Key(self.kind.kind, self.name), self.store.record(self.name)
        if self.desired is None:
            return DecisionInput(key, None, record, self.done.plan, Others({}, {}), NOW)
        return DecisionInput(
            key,
            self.desired,
            record,
            self.done.plan,
            _all_ready(self.desired),
            NOW,
            claims=self.kind.claims(self.desired.spec),
            idle=self.kind.spec_type.restarts and not self.kind.instance(observed),
            memory=self.memory,
            acted=self.acted,
            restarted=self.restarted,
            taken=[self._owned(other) for other in self._taken(observed)],
        )

    def _taken(self, observed: Any) -> Any:
        return self.kind.taken(self.name, self.desired, observed)  # type: ignore[arg-type]  # it is wanted

    def _owned(self, name: str) -> Any:
        record = self.store.record(name)
        assert record is not None
        return record

    async def _carry_out(
        self, step: Step, case: DecisionInput | None, observed: Any = None
    ) -> bool:
        """Do what was decided; False where the pass ends by it."""
        match step:
            case Claim() if case is not None:
                facts = self.kind.facts(self.desired, case.record, observed)  # type: ignore[arg-type]
                given_up = claims.given_up(case, self._taken(observed)) if case.taken else []
                for record in (*given_up, claims.claimed(case, facts)):
                    self.store.put(record)
                return True
            case Execute(plan=plan):
                await self._act(plan)
                return True
            case Settled(holds=holds) if case is not None:
                self.store.settled(self.name, case.claims | holds)
            case Hold() if not isinstance(self.done.plan, Wait):
                self.done.plan = Wait(step.reason, phase=step.phase, seconds=step.seconds or 10.0)
            case Gone() | Release():
                if isinstance(step, Release):
                    await self.kind.release(self.name)
                self.store.forget(self.name)
            case Hold() | Report():
                pass
            case _:
                raise AssertionError(f"cannot carry out {step}")
        return False

    async def _act(self, plan: Act[Any]) -> None:
        self.acted = self.acted or plan.drift
        if plan.drift and plan.is_restart:
            self.restarted = tuple(type(action) for action in plan.actions)
        self.done.fields += plan.fields
        for action in plan.actions:
            self.before(action)
            await self.kind.apply(action)
            self.done.actions.append(action)


def _all_ready(desired: Desired[Any]) -> Others:
    """Whatever it needs is Ready."""
    ready = resource_status(None, Outcome("Ready"), 1, desired.digest, NOW.wire)
    needs = [Key.parse(need) for need in desired.spec.needs()]
    return Others(dict.fromkeys(needs, desired.digest), dict.fromkeys(needs, ready))
