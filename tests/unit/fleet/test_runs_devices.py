"""Upgrade runs in any order of events, with devices that decide as agent and updater do: watchers
that are cut off, links that come and go, reboots, operators who cancel.

No budget is broken, no device is asked twice in a run, what a run took back never begins later, and
each run ends.

Planted by hand, each of these was found: a budget that is off by one; silent devices, or those that wait for their
heartbeat, not counted; an expiry that is never reached, or that the updater ignores; two runs that begin over one device; an
older run that is not ended; no end by the deadline; what ended or was withdrawn left desired; success without a later
heartbeat; waves that don't wait; a failure that doesn't stop the run; a request written over its own removal; a cancelled run
that begins a wave; a request counted as withdrawn too early, or while the device has it; an agent that forgets that it asked,
or lets go of an attempt that runs; a cancelled request that is not taken back. Not to be found here: a boot id that isn't
asked for (the updater's table gives no `complete` without another boot; `test_runs.py` has it), and a cancelled run that
still asks (what it asks for is taken back in the same step).
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
from harmony_fleet.rollout.runs.advance import ACTIVE, FAILED
from harmony_fleet.rollout.runs.follow import step
from harmony_fleet.rollout.runs.plan import Request, freeze
from harmony_fleet.rollout.runs.store import all_runs, cancel_run, create
from scores.canonical import read
from scores.keys import DESIRED, TASK_RUNS
from scores.manifest import MAX_MANIFEST, validate
from scores.names import parse_time
from scores.task_run import TaskRun, TaskTarget
from tests.scale import scaled
from tests.unit.fleet.build import OURS
from tests.unit.fleet.upgrading import Buckets, Upgrading, is_busy, minutes

NAMES = ("a", "b", "c", "d")
DEVICE = st.sampled_from(NAMES)
NUMBER = st.integers(0, 10)
REMOVED = b'"removed":true'
GOOD = ("unhindered", "started", "upgraded", "reboot-asked", "rebooted", "verified", "refused")


ASKED: Any = {
    "names": st.sampled_from([{*NAMES}, {*NAMES}, {*NAMES}, {"a", "b", "c"}, {"a", "d"}, {"b"}]),
    "budget": st.sampled_from([1, 2, 2, 3, 3]),
    "canary": st.sampled_from([False, False, True]),
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
        self.unheard: set[tuple[str, str]] = set()
        """by run: devices that were silent when they were skipped"""
        self.may: dict[str, set[str]] = {}
        """by cancelled run: devices for which a request stood then, or which had one, or had begun it, by when it was
        taken back
        """
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
        self.unheard |= {
            (run.run_uid, one.device)
            for one in run.targets
            if one.state == "skipped" and one.device in silent
        }
        pairs = zip(before.targets if before else run.targets, run.targets, strict=True)
        new = [to.device for was, to in pairs if (was.state, to.state) == ("pending", "requested")]
        away = [one for one in run.targets if one.state in ACTIVE or one.device in silent]
        if new:
            wave = max(one.wave for one in run.targets if one.device in new)
            before_it = {one.state for one in run.targets if one.wave < wave}
            assert before_it <= {"succeeded"}, run
            assert not any(one.state in FAILED for one in run.targets), run
            assert not run.cancelled
            assert self.buckets.time < parse_time(run.deadline)
        assert not set(new) - silent or len(away) <= run.max_unavailable, (run, silent)

    def runs(self) -> list[TaskRun]:
        found: list[TaskRun] = self.run(all_runs(self.buckets))
        return found

    @initialize(**ASKED, away=st.sampled_from(["d", "d", "c", "a", None]))
    def the_first(
        self, names: set[str], budget: int, canary: bool, length: int, away: str | None
    ) -> None:
        """The first run; a device may fall silent before anybody watches it."""
        self.start(names, budget, canary, length)
        if away is not None:
            self.falls_silent(away)

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
        uid = self.uids[which % len(self.uids)]
        self.buckets.writes = writes
        try:
            run, _ = self.run(step(self.buckets, uid, Signing()))
        except (Unreachable, Conflict):
            return
        finally:
            self.buckets.writes = None
        if run.cancelled and uid in self.may:  # who hasn't read it by now never will
            self.may[uid] = {name for name in self.may[uid] if self._may_begin(run, name)}

    @precondition(lambda self: self.uids)
    @rule(which=NUMBER)
    def cancel(self, which: int) -> None:
        uid = self.uids[which % len(self.uids)]
        before = next(run for run in self.runs() if run.run_uid == uid)
        self.run(cancel_run(self.buckets, uid))
        if before.phase == "Running" and uid not in self.may:
            self.may[uid] = {name for name in NAMES if self._has_request(before, name)}

    @precondition(lambda self: self.uids)
    @rule(which=NUMBER, name=DEVICE)
    def asked_and_cancelled_while_away(self, which: int, name: str) -> None:
        """A device is away for so short that nobody calls it silent."""
        self.devices[name].linked = False
        self.watch(which, None)
        self.cancel(which)
        self.watch(which, None)
        self.link(name, up=True)
        self.turn({name})

    def _has_request(self, run: TaskRun, name: str) -> bool:
        entry = self.buckets.held.get((DESIRED, f"{name}.{run.deployment}"))
        value = (entry.value if entry is not None else None) or REMOVED
        return REMOVED not in value or self._may_begin(run, name)

    def _may_begin(self, run: TaskRun, name: str) -> bool:
        """It has the request, or has let go of one that its updater had accepted."""
        device = self.devices[name]
        taken = device.enforced.get(run.deployment)
        has_it = taken is not None and not taken.removed
        return has_it or any(uid == run.run_uid for uid, _ in device.updater.accepted)

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
    def falls_silent(self, name: str) -> None:
        """It is away for longer than a heartbeat may be old; the others aren't."""
        self.devices[name].linked = False
        self.wait(31)

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

    @invariant()
    def success_has_its_evidence(self) -> None:
        """A device that succeeded has another boot or had nothing to upgrade, said so in time, and was
        heard after that.
        """
        for run, target, device in self._targets():
            if target.state != "succeeded":
                continue
            detail = device.updater.attempts[target.attempt_id].detail
            idle = detail.reason == "NothingToUpgrade"
            assert detail.phase == "complete"
            assert idle or detail.bootIdBefore != detail.bootIdAfter, detail
            told, heard = parse_time(str(target.completed_at)), device.as_told().heard
            assert told <= parse_time(run.deadline)
            assert heard is not None
            assert heard > told

    @invariant()
    def what_was_skipped_has_not_begun(self) -> None:
        """A device that was skipped while it was heard has no attempt under way."""
        for run, target, device in self._targets():
            if target.state == "skipped" and (run.run_uid, target.device) not in self.unheard:
                assert not is_busy(device, run.run_uid), (target, run)

    def _targets(self) -> list[tuple[TaskRun, TaskTarget, Upgrading]]:
        return [
            (run, target, self.devices[target.device])
            for run in self.runs()
            for target in run.targets
        ]

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
        self.success_has_its_evidence()
        self.what_was_skipped_has_not_begun()


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=scaled(40, 400), stateful_step_count=40, deadline=None)
