"""One pass over a resource that is wanted no more: take it off, or release it."""

from __future__ import annotations

from collections.abc import Callable

from harmony_agent.core import decide
from harmony_agent.core.decide import RetryState
from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Execute, Gone, Hold, Release, Step
from harmony_agent.engine.reconcile import cases
from harmony_agent.engine.reconcile.pacing import Pacing
from harmony_agent.engine.reconcile.steps import ROUNDS, Steps, held
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance


class Removal:
    """Takes off what the ledger says is ours and no manifest wants."""

    def __init__(
        self, state: DeviceState, pacing: Pacing, steps: Steps, gone: Callable[[Key], None]
    ) -> None:
        """`gone` is called with a key whose record was dropped."""
        self._state = state
        self._pacing = pacing
        self._steps = steps
        self._gone = gone

    async def remove(
        self,
        key: Key,
        record: OwnershipRecord | None,
        reconciler: KindInstance,
        memory: RetryState,
    ) -> Outcome | None:
        """Bring the removal a pass nearer to its end; None where it is gone, or wanted again."""
        step: Step | None = cases.without_a_look(self._state, record)
        observed: object | None = None
        for _ in range(ROUNDS):
            if step is None:
                observed = await self._steps.observe(key, reconciler)
                if key in self._state.desired:
                    return None
                plan = reconciler.plan(key.name, None, self._state.records.get(key), observed)
                step = decide.next_step(cases.leaving(self._state, key, plan, self._pacing.now()))
            match step:
                case Gone() | Release():
                    await self._drop(key, reconciler, release=isinstance(step, Release))
                    return None
                case Hold():
                    self._steps.wait(key, step)
                    return held(step, reconciler.detail(self._state.records.get(key), observed))
                case Execute():
                    if record is not None and await self._begin_to_undo(key):
                        await self._steps.act(key, record, step.plan, reconciler)
            step = None
        self._pacing.hold_still_acting(key, memory)
        detail = reconciler.detail(self._state.records.get(key), observed)
        return Outcome("Removing", "StillActing", "not gone yet; looking again", detail)

    async def _begin_to_undo(self, key: Key) -> bool:
        """Have the ledger say so first; False where it was wanted again while that was written."""
        record = self._state.records[key]
        undoing = record.undoing()
        if undoing is not record:
            await self._state.records.write(undoing)
        return key not in self._state.desired

    async def _drop(self, key: Key, reconciler: KindInstance, *, release: bool) -> None:
        if release:
            await reconciler.release(key.name)
        await self._state.forget(key)
        self._gone(key)
