"""The engine's pass over one resource, without loops, time or a ledger: for the unit and contract
tests of a kind.

It follows `core.reconcile`: observe, plan, ownership, claim durably, apply each action, observe and
plan anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from harmony_agent.core.reconciler import Act, Converged, Desired, Plan, Wait
from harmony_agent.engine.kind_instance import KindInstance
from tests.fakes.store import FakeStore

ROUNDS = 6


@dataclass
class Pass:
    """What a pass did: the last plan (Blocked/OwnershipConflict as a Wait), the actions taken, the
    fields named.
    """

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
    desired = store.desired(name)
    kind = kind if isinstance(kind, KindInstance) else KindInstance(kind)
    kind.batch_begin([name])
    try:
        if desired is None:
            return await _remove(kind, store, name, before)
        return await _converge(kind, store, desired, before)
    finally:
        kind.batch_end(name)


async def _converge(
    kind: Any, store: FakeStore, desired: Desired[Any], before: Callable[[Any], None]
) -> Pass:
    spec, name = desired.spec, desired.spec.name
    claims = kind.claims(spec)
    observed = await kind.observe(name)
    plan = kind.plan(name, desired, observed)
    record = store.record(name)
    taken = kind.taken(name, desired, observed)
    held = [store.record(other).claims for other in taken] + (
        [record.claims] if record is not None else []
    )
    owned = bool(held) and claims <= frozenset().union(*held)
    disturbs = isinstance(plan, Act) and any(action.is_disruptive for action in plan.actions)
    if not owned and disturbs and not spec.adopt:
        return Pass(Wait("OwnershipConflict", phase="Blocked", seconds=10.0))
    if record is None or not owned or taken or record.spec_digest != desired.digest:
        older = record.claims if record is not None else frozenset()
        facts = kind.facts(name, desired, observed)
        for other, kept in taken.items():
            store.give_up(other, kept, claims)
        store.claim(name, facts, claims | older)
        plan = kind.plan(name, desired, await kind.observe(name))
    result = Pass(plan)
    await _rounds(kind, name, desired, result, before)
    if isinstance(result.plan, Converged):
        store.settled(name, claims | result.plan.holds)
    return result


async def _remove(kind: Any, store: FakeStore, name: str, before: Callable[[Any], None]) -> Pass:
    record = store.record(name)
    if record is None or record.on_remove == "orphan":
        if record is not None:
            await kind.release(name)
        store.forget(name)
        return Pass(Converged())
    result = Pass(kind.plan(name, None, await kind.observe(name)))
    await _rounds(kind, name, None, result, before)
    if isinstance(result.plan, Converged):
        store.forget(name)
    return result


async def _rounds(
    kind: Any, name: str, desired: Desired[Any] | None, result: Pass, before: Callable[[Any], None]
) -> None:
    for _ in range(ROUNDS):
        if not isinstance(result.plan, Act):
            return
        result.fields += result.plan.fields
        for action in result.plan.actions:
            before(action)
            await kind.apply(action)
            result.actions.append(action)
        result.plan = kind.plan(name, desired, await kind.observe(name))
