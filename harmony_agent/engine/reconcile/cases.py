"""Collect the engine's knowledge of one resource for a decision.

Decides nothing itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_agent.core import decide
from harmony_agent.core.actions import Action, Plan
from harmony_agent.core.decide import DecisionInput, Now, Others
from harmony_agent.core.resources import Facts, Key, OwnershipRecord
from harmony_agent.core.steps import Step
from harmony_agent.engine.reconcile.context import ReconcileContext
from harmony_agent.engine.state.device_state import DeviceState


def wanted(
    state: DeviceState, this: ReconcileContext, plan: Plan[Action], now: Now
) -> DecisionInput:
    """A resource that is wanted."""
    return DecisionInput(
        this.key,
        this.desired,
        state.records.get(this.key),
        plan,
        _others(state, this.desired.deployment),
        now,
        claims=this.reconciler.claims(this.desired.spec),
        idle=this.reconciler.spec_type.restarts and not this.reconciler.instance(this.observed),
        memory=this.memory,
        acted=this.acted,
        restarted=this.restarted,
        taken=[state.records[Key(this.key.kind, name)] for name in taken(this)],
        paused=state.pauses.until(this.desired.deployment),
    )


def taken(this: ReconcileContext) -> Mapping[str, Facts]:
    """List what others of its kind give up to it, as the facts that each keeps."""
    return this.reconciler.taken(this.key.name, this.desired, this.observed)


def leaving(state: DeviceState, key: Key, plan: Plan[Action], now: Now) -> DecisionInput:
    """A resource that is wanted no more."""
    record = state.records.get(key)
    deployment = record.deployment if record else ""
    others, paused = _others(state, deployment), state.pauses.until(deployment)
    return DecisionInput(key, None, record, plan, others, now, paused=paused)


def without_a_look(state: DeviceState, record: OwnershipRecord | None) -> Step | None:
    """The step for one that is wanted no more, where no look is needed."""
    return decide.without_a_look(record, state.pauses.until(record.deployment) if record else "")


def _others(state: DeviceState, deployment: str) -> Others:
    return Others(state.digests(), state.statuses, state.being_removed(deployment))
