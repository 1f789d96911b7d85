"""Tells whether a resource that is as wanted also works, and restarts it where it doesn't."""

from __future__ import annotations

import logging
from dataclasses import replace

from harmony_agent.core import decide
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import Hold, Settled
from harmony_agent.engine.reconcile.context import HealthTracker, HealthVerdict, ReconcileContext
from harmony_agent.engine.reconcile.pacing import Pacing
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState
from scores.status import ContainerDetail, Detail, ResourcePhase, SessionDetail, UnitDetail

log = logging.getLogger(__name__)


class HealthJudge:
    """Reads the results of the probes of what runs."""

    def __init__(
        self, state: DeviceState, health: HealthTracker, pacing: Pacing, queue: WorkQueue
    ) -> None:
        self._state = state
        self._queue = queue
        self._health = health
        self._pacing = pacing

    async def settle(self, this: ReconcileContext, settled: Settled) -> Outcome | Hold | None:
        """Record that it is as wanted, and say whether it works; None where it was restarted."""
        verdict = self._track(this)
        if not verdict.alive:
            return await self._restart(this, verdict)
        await self._applied(this, settled, ready=verdict.ready)
        detail = _with_ready(this.detail(), ready=verdict.ready)
        if verdict.ready:
            told = settled.reason, settled.message
            return Outcome(settled.phase, *told, detail=detail, drift=this.drift())
        phase: ResourcePhase = "Degraded" if verdict.was_ready else "Progressing"
        why = f"its readiness probe fails: {verdict.why or 'no result yet'}"
        return Outcome(phase, "NotReady", why, detail)

    async def drifted(self, this: ReconcileContext, message: str) -> Outcome | Hold | None:
        """Report a difference and leave it; None where it was restarted.

        Health is no drift: a dead process is restarted as it is.
        """
        verdict = self._track(this)
        if not verdict.alive:
            return await self._restart(this, verdict)
        return Outcome("Degraded", "DriftReported", message, this.detail(), this.drift())

    async def _applied(self, this: ReconcileContext, settled: Settled, *, ready: bool) -> None:
        record = replace(
            self._state.records[this.key],
            applied=this.desired.version,
            claims=this.reconciler.claims(this.desired.spec) | settled.holds,
            ready=this.reconciler.instance(this.observed) if ready else "",
        )
        if not (record.changing or this.memory.changed):
            self._state.records.write_later(record)
            return
        for follower in await self._state.changed(record, self._pacing.moment()):
            self._queue.add(follower)
        this.memory.changed = False

    def _track(self, this: ReconcileContext) -> HealthVerdict:
        """Read the probes' results for the current run."""
        instance = this.reconciler.instance(this.observed)
        before = bool(instance) and self._state.records[this.key].ready == instance
        return self._health.track(this.key, this.desired.spec, instance, ready_before=before)

    async def _restart(self, this: ReconcileContext, verdict: HealthVerdict) -> Hold | None:
        why = f"its liveness probe fails: {verdict.why}"
        until = self._state.pauses.until(this.desired.deployment)
        if until:
            return decide.kept("Degraded", f"restart it, for {why}", until)
        wait = 0.0 if this.acted else self._pacing.start(this.memory)
        if wait > 0:
            return replace(decide.crash_loop(why, wait), reason="LivenessFailed")
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


def _with_ready(detail: Detail | None, *, ready: bool) -> Detail | None:
    """The detail with what the probes say: running is not yet ready."""
    if ready or not isinstance(detail, UnitDetail | ContainerDetail | SessionDetail):
        return detail
    return detail.model_copy(update={"ready": False})
