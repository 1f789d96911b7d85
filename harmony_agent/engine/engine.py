"""The engine: its loops under one task group. Knows no kind and no library by name; all of it is
handed in by `app`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

import anyio

from harmony_agent.core.admission import KindRules
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Key
from harmony_agent.core.signatures import Trust
from harmony_agent.engine.commands import Commands
from harmony_agent.engine.context import Times
from harmony_agent.engine.desired.intake import Intake
from harmony_agent.engine.desired.remains import Remains
from harmony_agent.engine.kind_instance import AnyReconciler, KindInstance
from harmony_agent.engine.loops import every
from harmony_agent.engine.reconcile.health import Health
from harmony_agent.engine.reconcile.relist import Relister
from harmony_agent.engine.reconcile.watchdog import Watchdog
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.reconcile.worker import Worker
from harmony_agent.engine.report.heartbeat import HeartbeatLoop
from harmony_agent.engine.report.oldest_unsettled import OldestUnsettled
from harmony_agent.engine.report.status import Publisher
from harmony_agent.engine.report.status_line import StatusLine
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology.control_plane import ControlPlane
from harmony_agent.topology.probing import Prober
from scores.status import DeploymentStatus, DeviceInfo, Heartbeat

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Intervals:
    """Seconds; as in the configuration."""

    heartbeat: float
    relist: float


class Engine:
    """One device, kept as its manifests say."""

    def __init__(
        self,
        *,
        device: str,
        state: DeviceState,
        kinds: Mapping[str, AnyReconciler],
        control: ControlPlane,
        prober: Prober,
        times: Times,
        intervals: Intervals,
        describe: Callable[[], Awaitable[DeviceInfo]],
        refresh: Callable[[], None],
        agent_version: str,
        say: Callable[[str], None] = lambda _sentence: None,
        rebuilt: Callable[[], None] = lambda: None,
        trust: Trust | None = None,
    ) -> None:
        """Put the loops together; `kinds` were made with `book.store(kind)`.

        `device_info` makes the DeviceInfo; `refresh` makes desired state be read anew; `say` is for
        people nearby; `rebuilt` is called when the state directory had to be made anew.
        """
        self.device = device
        self.state = state
        self.kinds = {name: KindInstance(reconciler) for name, reconciler in kinds.items()}
        self._control = control
        self._times = times
        self._intervals = intervals
        self._refresh = refresh
        self._rebuilt = rebuilt
        self._ledger_lost = False
        self._unsettled = OldestUnsettled(times.clock)
        self._describe = describe
        fresh = not state.ledger.manifests() and not state.ledger.records()
        self.remains = remains = Remains(state, self.kinds, fresh=fresh)
        self.publisher = Publisher(device, state, control, times.clock, remains.recall)
        self.status_line = StatusLine(state, times.clock, say)
        self.queue = WorkQueue(times.clock)
        self.heartbeats = HeartbeatLoop(
            device,
            control,
            times.clock,
            beat=self._heartbeat,
            describe=self._described,
            statuses_lost=self.publisher.invalidate,
            statuses_look=self.publisher.look,
            twin=self.publisher.say_twin,
        )
        self.health = Health(prober, self.kinds, times.clock, self.queue.add)
        self.converger = Worker(state, self.kinds, self.queue, times, health=self.health)
        self.relisters = [
            Relister(reconciler, self.converger.seen[name], state, self.queue, times)
            for name, reconciler in self.kinds.items()
        ]
        self.progress = Watchdog(self.queue, self.relisters, intervals.relist)
        self.intake = Intake(
            device=device,
            state=state,
            control=control,
            clock=times.clock,
            kinds={name: KindRules(one.admit, one.claims) for name, one in self.kinds.items()},
            queue=self._queue_changed,
            on_snapshot=self._invalidate,
            on_lost=lambda lost: self.status_line.lost(lost, times.wire_now()),
            trust=trust or Trust(),
            remains=remains,
        )
        self.commands = Commands(
            state, self.kinds, {"device": device, "agent_version": agent_version}, self.resync
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Run until cancelled; `ready` is called once work goes on from what is persisted."""
        self.intake.restore()
        self.publisher.be_patient()
        clock, intervals = self._times.clock, self._intervals
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.queue.run, self.converger.work)
            tasks.start_soon(self.health.run)
            tasks.start_soon(self.intake.run)
            tasks.start_soon(self.publisher.run)
            tasks.start_soon(self.status_line.run)
            tasks.start_soon(self._control.serve, self.commands.answer)
            tasks.start_soon(self.heartbeats.run, intervals.heartbeat)
            tasks.start_soon(
                every, clock, intervals.relist, self._guard_ledger, "the ledger's guard"
            )
            for relister in self.relisters:
                tasks.start_soon(
                    every,
                    clock,
                    intervals.relist,
                    relister.relist,
                    f"the relist of {relister.kind}",
                )
                tasks.start_soon(relister.watch)
            ready()

    async def _described(self) -> DeviceInfo:
        """DeviceInfo with what nobody accounts for on the device and in desired state."""
        told = {"unmanaged": await self.remains.unmanaged(), "ignored_keys": self.intake.ignored()}
        return (await self._describe()).model_copy(update=told)

    def resync(self) -> None:
        """Read desired state and look at everything again."""
        self._refresh()
        for key in list(self.state.desired):
            self.queue.add(key)

    async def close(self) -> None:
        """Let go of what the kinds hold; what runs goes on."""
        for kind in self.kinds.values():
            await kind.close()

    def statuses(self) -> list[DeploymentStatus]:
        """Every deployment as it is now."""
        found = [self.publisher.status(name) for name in sorted(self.state.deployments)]
        return [status for status in found if status is not None]

    def _queue_changed(self, keys: Collection[Key]) -> None:
        """A newly accepted manifest changes these."""
        for name, reconciler in self.kinds.items():
            reconciler.batch_begin([key.name for key in keys if key.kind == name])
        for key in sorted(keys):
            self.queue.release(key)
            self.queue.add(key)

    def _invalidate(self) -> None:
        """A new snapshot: whatever stands in the other buckets may be another's."""
        self.publisher.invalidate()
        self.heartbeats.invalidate()

    async def _guard_ledger(self) -> bool:
        """The files of the ledger taken away under a running agent: say so, and write them anew
        from memory.

        Until that is possible, what was accepted is kept up from memory, and every status says that
        it is.
        """
        if self.state.ledger.intact():
            return True
        if not self._ledger_lost:
            log.error(
                "the ledger's files were taken away: writing them anew from memory",
                extra={"reason": "LedgerLost"},
            )
        try:
            await self.state.rebuild()
        except ResourceError as error:
            if not self._ledger_lost:
                log.error("%s", error, extra={"reason": "LedgerLost"})  # noqa: TRY400  # no defect: the words say all
            self._say_ledger_lost(True)
            return False
        log.warning("the ledger is written anew", extra={"reason": "LedgerLost"})
        self._say_ledger_lost(False)
        self._rebuilt()
        return True

    def _say_ledger_lost(self, lost: bool) -> None:
        if lost != self._ledger_lost:
            self._ledger_lost = lost
            self.publisher.say_ledger_lost(lost)
            self.status_line.say_ledger_lost(lost)

    def _heartbeat(self, seq: int) -> Heartbeat:
        return Heartbeat(
            device=self.device,
            seq=seq,
            desired_revision=self.intake.revision,
            oldest_unsettled_seconds=self._unsettled.oldest(self.state.statuses),
            relist_age_seconds=int(
                max((relister.age() for relister in self.relisters), default=0.0)
            ),
            clock_synchronized=self._times.clock.synchronized(),
        )
