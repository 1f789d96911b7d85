"""Upgrade runs in any order of events, with devices that decide as agent and updater do: watchers
that are cut off, links that come and go, reboots, operators who cancel.

No budget is broken, no device is asked twice in a run, what a run took back never begins later, and
each run ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from harmony_fleet.errors import Conflict, Refused, Unreachable
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.rollout.runs.advance import ACTIVE
from harmony_fleet.rollout.runs.follow import step
from harmony_fleet.rollout.runs.plan import Request, freeze
from harmony_fleet.rollout.runs.store import all_runs, cancel_run, create
from scores.canonical import read
from scores.keys import DESIRED, TASK_RUNS
from scores.manifest import MAX_MANIFEST, validate
from scores.names import parse_time
from scores.task_run import TaskRun
from tests.scale import scaled
from tests.unit.fleet.build import OURS
from tests.unit.fleet.upgrading import Buckets, Upgrading, is_busy, minutes

NAMES = ("a", "b", "c", "d")
DEVICE = st.sampled_from(NAMES)
NUMBER = st.integers(0, 10)
REMOVED = b'"removed":true'
GOOD = ("unhindered", "started", "upgraded", "reboot-asked", "rebooted", "verified", "refused")


ASKED: Any = {
    "names": st.sets(DEVICE, min_size=1),
    "budget": st.integers(1, 3),
    "canary": st.booleans(),
    "length": st.sampled_from([10, 60]),
}


class Runs(RuleBasedStateMachine):
    """Four devices, their buckets, and whoever carries runs on."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.buckets: Any = Buckets()
        self.buckets.on_put = self._written
        self.devices = {name: Upgrading(name, self.buckets) for name in NAMES}
        self.uids: list[str] = []
        self.known: dict[str, TaskRun] = {}
        """by its id, each run as it was written last"""
        self.asked: Counter[tuple[str, str]] = Counter()
        """by run's deployment and device: requests that were written"""
        self.may: dict[str, set[str]] = {}
        """by cancelled run: devices for which a request stood then, or which had read one"""
        for device in self.devices.values():
            device.beat()

    def teardown(self) -> None:
        try:
            self._all_end()
        finally:
            self.loop.close()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def _written(self, bucket: str, key: str, value: bytes) -> None:
        if bucket == DESIRED and REMOVED not in value:
            device, _, deployment = key.partition(".")
            self.asked[deployment, device] += 1
        elif bucket == TASK_RUNS and key in self.uids:
            self._asks(validate(TaskRun, read(value, MAX_MANIFEST)))

    def _asks(self, run: TaskRun) -> None:
        """Nobody who is heard is asked where more than may be are away by then."""
        before = self.known.get(run.run_uid)
        self.known[run.run_uid] = run
        silent = {
            name for name, one in self.devices.items() if one.as_told().silent(self.buckets.time)
        }
        pairs = zip(before.targets if before else run.targets, run.targets, strict=True)
        new = [to.device for was, to in pairs if (was.state, to.state) == ("pending", "requested")]
        away = [one for one in run.targets if one.state in ACTIVE or one.device in silent]
        assert not set(new) - silent or len(away) <= run.max_unavailable, (run, silent)

    def runs(self) -> list[TaskRun]:
        found: list[TaskRun] = self.run(all_runs(self.buckets))
        return found

    @initialize(**ASKED)
    def the_first(self, names: set[str], budget: int, canary: bool, length: int) -> None:
        self.start(names, budget, canary, length)

    # -- operators and watchers

    @precondition(lambda self: len(self.uids) < 3)
    @rule(**ASKED)
    def start(self, names: set[str], budget: int, canary: bool, length: int) -> None:
        uid = f"3f2a000{len(self.uids)}-0000-4000-8000-000000000001"
        asked = Request(uid, OURS, minutes(length), budget, 1 if canary else None)
        told = [self.devices[name].as_told() for name in sorted(names)]
        try:
            made = freeze(asked, told, [], self.buckets.time)
        except Refused:
            return
        self.uids.append(uid)
        self.run(create(self.buckets, made))

    @precondition(lambda self: self.uids)
    @rule(which=NUMBER, writes=st.sampled_from([None, None, 1, 2, 3]))
    def watch(self, which: int, writes: int | None) -> None:
        """One step of a watcher, that may be cut off after some writes."""
        self.buckets.writes = writes
        try:
            self.run(step(self.buckets, self.uids[which % len(self.uids)], Signing()))
        except (Unreachable, Conflict):
            pass
        finally:
            self.buckets.writes = None

    @precondition(lambda self: self.uids)
    @rule(which=NUMBER)
    def cancel(self, which: int) -> None:
        uid = self.uids[which % len(self.uids)]
        before = next(run for run in self.runs() if run.run_uid == uid)
        self.run(cancel_run(self.buckets, uid))
        if before.phase == "Running" and uid not in self.may:
            self.may[uid] = {name for name in NAMES if self._has_request(before, name)}

    def _has_request(self, run: TaskRun, name: str) -> bool:
        entry = self.buckets.held.get((DESIRED, f"{name}.{run.deployment}"))
        value = (entry.value if entry is not None else None) or REMOVED
        taken = self.devices[name].enforced.get(run.deployment)
        return REMOVED not in value or (taken is not None and not taken.removed)

    # -- devices

    @rule(names=st.sets(DEVICE, min_size=1))
    def turn(self, names: set[str]) -> None:
        for name in sorted(names):
            self.run(self.devices[name].turn())

    @precondition(lambda self: any(one.updater.active for one in self.devices.values()))
    @rule(who=NUMBER, which=NUMBER)
    def happens(self, who: int, which: int) -> None:
        busy = [one for one in self.devices.values() if one.updater.active]
        device = busy[who % len(busy)]
        boot, events = device.updater.boot, sorted(device.updater.events())
        device.updater.happens(events[which % len(events)])
        if device.updater.boot != boot:
            device.restart()

    @rule(name=DEVICE, up=st.booleans())
    def link(self, name: str, up: bool) -> None:
        self.devices[name].linked = up
        self.devices[name].beat()

    @rule(name=DEVICE)
    def restart(self, name: str) -> None:
        self.devices[name].restart()

    @rule(seconds=st.sampled_from([1, 10, 31, 300]))
    def wait(self, seconds: int) -> None:
        self.buckets.time += timedelta(seconds=seconds)
        for device in self.devices.values():
            device.passes(seconds)

    # -- what always holds

    @invariant()
    def no_budget_is_broken(self) -> None:
        for run in self.runs():
            busy = [name for name, device in self.devices.items() if is_busy(device, run.run_uid)]
            assert len(busy) <= run.max_unavailable, (run.run_uid, busy)

    @invariant()
    def nobody_is_asked_twice(self) -> None:
        assert all(count == 1 for count in self.asked.values()), self.asked
        for device in self.devices.values():
            accepted = Counter(run for run, _ in device.updater.accepted)
            assert all(count == 1 for count in accepted.values())

    @invariant()
    def a_device_is_of_one_run(self) -> None:
        of = Counter(
            target.device
            for run in self.runs()
            if run.begun and run.phase == "Running"
            for target in run.targets
        )
        assert all(count == 1 for count in of.values()), of

    @invariant()
    def what_was_taken_back_never_begins(self) -> None:
        for run in self.runs():
            for name, device in self.devices.items():
                accepted = [at for uid, at in device.updater.accepted if uid == run.run_uid]
                assert all(at < parse_time(run.deadline) for at in accepted)
                if run.run_uid in self.may and accepted:
                    assert name in self.may[run.run_uid], (name, run)

    # -- and in the end

    def _all_end(self) -> None:
        """Each run ends by its deadline, whoever is away. Once all are back, nothing of it is
        desired any more.
        """
        last = max((parse_time(run.deadline) for run in self.runs()), default=self.buckets.time)
        while self.buckets.time <= last:
            self._go_on(300)
        for _ in range(3):  # somebody has to look after it
            self._go_on(1)
        assert all(run.phase != "Running" for run in self.runs()), self.runs()
        for device in self.devices.values():
            device.linked = True
        for _ in range(30):
            self._go_on(20)
        assert self.run(self.buckets.entries(DESIRED)) == {}
        for run in self.runs():
            assert all(target.state not in ACTIVE for target in run.targets)

    def _go_on(self, seconds: int) -> None:
        """Time passes, updaters do what they can, somebody watches."""
        self.wait(seconds)
        for device in self.devices.values():
            events = device.updater.events()
            if events:
                device.updater.happens(next(one for one in GOOD if one in events))
            self.run(device.turn())
        for at in range(len(self.uids)):
            self.watch(at, None)
        self._check()

    def _check(self) -> None:
        self.no_budget_is_broken()
        self.nobody_is_asked_twice()
        self.a_device_is_of_one_run()
        self.what_was_taken_back_never_begins()


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=scaled(40, 400), stateful_step_count=40, deadline=None)
