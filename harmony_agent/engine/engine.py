"""The engine: its loops under one task group. Knows no kind and no library by name; all of it is
handed in by `app`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final

import anyio

from harmony_agent.core.admission import KindRules
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Key
from harmony_agent.core.signatures import Trust
from harmony_agent.engine.desired.acceptance import Acceptance
from harmony_agent.engine.desired.intake import Intake
from harmony_agent.engine.desired.remains import Remains
from harmony_agent.engine.desired.reverting import Reverting
from harmony_agent.engine.desired.secrets import SecretIntake
from harmony_agent.engine.loops import every
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.reconcile.health import Health
from harmony_agent.engine.reconcile.relist import Relister
from harmony_agent.engine.reconcile.watchdog import Watchdog
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.reconcile.worker import Worker
from harmony_agent.engine.report.commands import Commands
from harmony_agent.engine.report.heartbeat import HeartbeatLoop, OldestUnsettled
from harmony_agent.engine.report.ledger_guard import LedgerGuard
from harmony_agent.engine.report.pausing import Pausing
from harmony_agent.engine.report.status import Publisher
from harmony_agent.engine.report.status_line import StatusLine
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import AnyReconciler, KindInstance
from harmony_agent.topology.control_plane import ControlPlane
from harmony_agent.topology.probing import Prober
from harmony_agent.topology.secrets import SecretStore
from scores.status import DeploymentStatus, DeviceInfo, Heartbeat

RELISTS: Final = 6
"""A kind tidies up once in so many periods of the relist."""


@frozen()
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
        secrets: SecretStore | None = None,
    ) -> None:
        """Put the loops together; each of `kinds` was made with a `DeviceStateView` of `state`.

        `describe` makes the DeviceInfo; `refresh` makes desired state be read anew; `say` is for
        people nearby; `rebuilt` is called when the state directory had to be made anew. Without a
        store of `secrets` none comes to this device.
        """
        self.device = device
        self.state = state
        self.kinds = {name: KindInstance(reconciler) for name, reconciler in kinds.items()}
        self._control = control
        self._times = times
        self._intervals = intervals
        self._refresh = refresh
        self._unsettled = OldestUnsettled(times.clock)
        self._describe = describe
        fresh = not state.ledger.manifests() and not state.ledger.records()
        self.remains = Remains(state, self.kinds, fresh=fresh)
        self.publisher = Publisher(device, state, control, times.clock, self.remains.recall)
        self.status_line = StatusLine(state, times.clock, say)
        self._ledger_guard = LedgerGuard(state, self.publisher, self.status_line, rebuilt)
        self.queue = WorkQueue(times.clock)
        self.heartbeats = self._heartbeat_loop()
        self.health = Health(prober, self.kinds, times.clock, self.queue.add)
        self.worker = Worker(state, self.kinds, self.queue, times, health=self.health)
        self.relisters = [
            Relister(reconciler, self.worker.seen[name], state, self.queue, times)
            for name, reconciler in self.kinds.items()
        ]
        self.progress = Watchdog(self.queue, self.relisters, intervals.relist)
        self.reverting = Reverting(device, state, times.moment, self._queue_changed, refresh)
        self.acceptance = self._acceptance(trust or Trust())
        self.intake = self._intake()
        self.secrets = self._secrets(secrets, trust or Trust()) if secrets is not None else None
        self.pausing = self._pausing(trust or Trust())
        hello = {"device": device, "agent_version": agent_version}
        self.commands = Commands(state, self.kinds, hello, self.resync, self.pausing.verbs())

    def _heartbeat_loop(self) -> HeartbeatLoop:
        return HeartbeatLoop(
            self.device,
            self._control,
            self._times.clock,
            beat=self._heartbeat,
            describe=self._described,
            statuses_lost=self.publisher.invalidate,
            statuses_look=self.publisher.look,
            twin=self.publisher.say_twin,
        )

    def _acceptance(self, trust: Trust) -> Acceptance:
        return Acceptance(
            self.device,
            self.state,
            self._control,
            kinds={name: KindRules(one.admit, one.claims) for name, one in self.kinds.items()},
            queue=self._queue_changed,
            trust=trust,
            remains=self.remains,
            reverting=self.reverting,
        )

    def _secrets(self, store: SecretStore, trust: Trust) -> SecretIntake:
        return SecretIntake(
            self.device,
            self.state,
            self._control,
            store,
            trust=trust,
            clock=self._times.clock,
            queue=self._queue_changed,
        )

    def _pausing(self, trust: Trust) -> Pausing:
        return Pausing(
            self.device,
            self.state,
            self._times.clock,
            self._times.moment,
            trust=trust,
            working=self.queue.working,
            look_again=self._look_again,
            told=self.heartbeats.described,
        )

    def _intake(self) -> Intake:
        return Intake(
            self.device,
            self.state,
            self._control,
            self._times.clock,
            acceptance=self.acceptance,
            on_snapshot=self._invalidate,
            on_lost=lambda lost: self.status_line.lost(lost, self._times.wire_now()),
        )

    async def run(self, ready: Callable[[], None]) -> None:
        """Run until cancelled; `ready` is called once work goes on from what is persisted."""
        self.state.pauses.begin(self._times.moment())
        if self.secrets is not None:
            self.secrets.restore()
        self.reverting.start()
        self.acceptance.restore()
        self.publisher.be_patient()
        clock, intervals = self._times.clock, self._intervals
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.queue.run, self.worker.work)
            tasks.start_soon(self.health.run)
            tasks.start_soon(self.intake.run)
            if self.secrets is not None:
                tasks.start_soon(self.secrets.run)
            tasks.start_soon(self.publisher.run)
            tasks.start_soon(self.status_line.run)
            tasks.start_soon(self.pausing.run)
            tasks.start_soon(self._control.serve, self.commands.answer)
            tasks.start_soon(self.heartbeats.run, intervals.heartbeat)
            tasks.start_soon(
                every, clock, intervals.relist, self._ledger_guard.look, "the ledger's guard"
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
            for kind in self.kinds.values():
                if kind.tidy is not None:
                    seconds, what = intervals.relist * RELISTS, f"the tidying of {kind.kind}"
                    tasks.start_soon(every, clock, seconds, kind.tidy, what)
            ready()

    async def _described(self) -> DeviceInfo:
        """DeviceInfo with what nobody accounts for on the device and in desired state."""
        told = {
            "unmanaged": await self.remains.unmanaged(),
            "ignored_keys": self.intake.ignored(),
            "paused": self.state.pauses.shown(),
        }
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
        self._look_again(keys)
        for key in sorted(keys):
            self.worker.interrupt(key)

    def _look_again(self, keys: Collection[Key]) -> None:
        """Look at these now, whatever they wait for."""
        for key in sorted(keys):
            self.queue.release(key)
            self.queue.add(key)

    def _invalidate(self) -> None:
        """A new snapshot: whatever stands in the other buckets may be another's."""
        self.publisher.invalidate()
        self.heartbeats.invalidate()

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
