"""Days of a device's life in minutes: random faults, from a seed that Hypothesis prints, over the
engine and the fakes.

Whatever happened, once the faults end the device is as its manifests say, and says so. On the way:
no generation goes back, and nothing that isn't ours is touched.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.engine.engine import Engine, Intervals
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO
from scores.names import format_time
from scores.status import Capabilities, DeviceInfo, OsInfo
from tests.fakes.ledger import FakeLedger
from tests.fakes.memory_kind import MemoryFiles
from tests.fakes.plane import FakePlane
from tests.fakes.virtual import VirtualClock, VirtualLoop

DEVICE = "pi-01"
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"
DEPLOYMENTS = ("db", "web")
NAMES = tuple("abcde")
TIMEOUT = 30.0
HOUR = 3600.0


class Files(MemoryFiles):
    """Files whose calls take time, fail and hang as the faults say; what is foreign is guarded."""

    faults: Faults

    async def observe(self, name: str) -> bytes | None:
        await asyncio.sleep(0.001)
        if name in self.hung:
            await asyncio.sleep(TIMEOUT)  # as every adapter: the call has its own time-out
            raise Transient("Timeout", f"cannot look at {name}", phase="Unknown")
        return await super().observe(name)

    async def apply(self, action: Any) -> None:
        await asyncio.sleep(0.001)
        self.faults.strike(action.name)
        assert action.path not in self.faults.foreign, f"{action.path} isn't ours"
        await super().apply(action)


class Faults:
    """What goes wrong now."""

    def __init__(self) -> None:
        self.errors: dict[str, list[Exception]] = {}
        self.foreign: dict[str, bytes] = {}

    def strike(self, name: str) -> None:
        if self.errors.get(name):
            raise self.errors[name].pop()


def probe_nothing() -> Any:
    """No File has a probe."""


async def describe() -> DeviceInfo:
    os = OsInfo(id="debian", version_id="12", arch="x86_64", kernel="6")
    return DeviceInfo(
        device=DEVICE,
        labels={},
        agent_version="1",
        boot_id="b",
        os=os,
        kinds=["File"],
        capabilities=Capabilities(),
    )


class Life(RuleBasedStateMachine):
    """One device, its control plane, and everything that happens to them."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.ledger = FakeLedger()
        self.disk: dict[str, bytes] = {}
        self.faults = Faults()
        self.chance = random.Random(0)
        self.roster: dict[str, dict[str, Any]] = {}
        self.generation = dict.fromkeys(DEPLOYMENTS, 0)
        self.shown = dict.fromkeys(DEPLOYMENTS, 0)
        self.task: asyncio.Task[None] | None = None
        self.run(self._begin())

    # -- machinery

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.run_until_complete(work)

    async def _begin(self) -> None:
        self.plane = FakePlane(DEVICE)
        self.plane.written = self._written
        await self._start()

    async def _start(self) -> None:
        times = Times(
            self.clock,
            lambda: format_time(datetime.fromtimestamp(self.clock.now(), UTC)),
            self.chance.random,
        )
        book = DeviceState(self.ledger, times.wire_now)
        self.files = Files(DeviceStateView(book, "File"))
        self.files.disk, self.files.faults = self.disk, self.faults
        self.engine = Engine(
            device=DEVICE,
            state=book,
            kinds={"File": self.files},
            control=self.plane,
            prober=probe_nothing(),
            times=times,
            intervals=Intervals(heartbeat=10, relist=10),
            describe=describe,
            refresh=self.plane.refresh,
            agent_version="1",
        )
        ready = asyncio.Event()
        self.task = asyncio.create_task(self.engine.run(ready.set))
        await ready.wait()

    async def _stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
            self.task = None
        self.plane.forget_agent()

    def _written(self, bucket: str, key: str, data: bytes) -> None:
        """What the device says of a generation never goes back."""
        if bucket == ACTUAL:
            name, said = key.partition(".")[2], json.loads(data)
            assert (said["generation"] or 0) >= self.shown[name], (
                f"{name} went back to {said['generation']}"
            )
            self.shown[name] = said["generation"] or 0
        if bucket == HEARTBEAT:
            assert len(data) <= 256

    def publish(self, deployment: str, files: dict[str, str], **more: Any) -> None:
        self.generation[deployment] += 1
        scores = [
            {
                "kind": "File",
                "name": f"{deployment}-{name}",
                "path": path(deployment, name),
                "content": content,
            }
            for name, content in files.items()
        ]
        value = {
            "api": "harmony/v1",
            "device": DEVICE,
            "deployment": deployment,
            "lineage": LINEAGE,
        }
        value |= {
            "generation": self.generation[deployment],
            "scores": scores,
            "allow_prune": 1000,
            **more,
        }
        self.roster[deployment] = value
        self.write(deployment)

    def write(self, deployment: str) -> None:
        if DESIRED in self.plane.entries:
            data = json.dumps(
                self.roster[deployment], sort_keys=True, separators=(",", ":")
            ).encode()
            self.plane.set(DESIRED, f"{DEVICE}.{deployment}", data)

    # -- what happens

    @initialize(seed=st.integers(0, 2**32))
    def seeded(self, seed: int) -> None:
        self.chance.seed(seed)

    @rule(
        deployment=st.sampled_from(DEPLOYMENTS),
        files=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["1", "2", "3"]), max_size=5),
    )
    def a_generation(self, deployment: str, files: dict[str, str]) -> None:
        self.publish(deployment, files)

    @rule(deployment=st.sampled_from(DEPLOYMENTS))
    def a_removal(self, deployment: str) -> None:
        self.publish(deployment, {}, removed=True)

    @rule(deployment=st.sampled_from(DEPLOYMENTS), data=st.sampled_from([b"rubbish", b"{}", None]))
    def rubbish_or_a_deleted_key(self, deployment: str, data: bytes | None) -> None:
        if DESIRED in self.plane.entries:
            self.plane.set(DESIRED, f"{DEVICE}.{deployment}", data)

    @rule(deployment=st.sampled_from(DEPLOYMENTS))
    def an_older_generation(self, deployment: str) -> None:
        if self.generation[deployment] > 1 and DESIRED in self.plane.entries:
            old = {**self.roster[deployment], "generation": 1, "scores": []}
            self.plane.set(DESIRED, f"{DEVICE}.{deployment}", json.dumps(old).encode())

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, HOUR, 6 * HOUR]))
    def time_passes(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))  # type: ignore[arg-type]

    @rule()
    def the_link_breaks(self) -> None:
        self.plane.cut()

    @rule(deaf=st.booleans())
    def the_link_is_back(self, deaf: bool) -> None:
        self.plane.deaf = deaf
        self.plane.mend()

    @rule(bucket=st.sampled_from([DESIRED, ACTUAL, INFO, HEARTBEAT]))
    def a_bucket_is_made_anew(self, bucket: str) -> None:
        self.plane.remake(bucket)

    @rule(bucket=st.sampled_from([DESIRED, ACTUAL]))
    def a_bucket_goes(self, bucket: str) -> None:
        self.plane.entries.pop(bucket, None)

    @rule(deployment=st.sampled_from(DEPLOYMENTS), data=st.sampled_from([b"rubbish", b"{}", None]))
    def somebody_writes_a_status(self, deployment: str, data: bytes | None) -> None:
        if ACTUAL in self.plane.entries:
            self.plane.set(ACTUAL, f"{DEVICE}.{deployment}", data)

    @rule(answers=st.integers(1, 4))
    def answers_are_lost(self, answers: int) -> None:
        self.plane.lost_answers = answers

    @rule(
        deployment=st.sampled_from(DEPLOYMENTS),
        name=st.sampled_from(NAMES),
        count=st.integers(1, 5),
    )
    def it_fails_for_a_while(self, deployment: str, name: str, count: int) -> None:
        self.faults.errors[f"{deployment}-{name}"] = [Transient("IoError", "cannot write")] * count

    @rule(deployment=st.sampled_from(DEPLOYMENTS), name=st.sampled_from(NAMES))
    def it_fails_for_good(self, deployment: str, name: str) -> None:
        self.faults.errors[f"{deployment}-{name}"] = [Terminal("UnknownOwner", "cannot own")]

    @rule(deployment=st.sampled_from(DEPLOYMENTS), name=st.sampled_from(NAMES))
    def it_is_a_defect(self, deployment: str, name: str) -> None:
        self.faults.errors[f"{deployment}-{name}"] = [KeyError("unforeseen")]

    @rule(deployment=st.sampled_from(DEPLOYMENTS), name=st.sampled_from(NAMES), hangs=st.booleans())
    def it_hangs(self, deployment: str, name: str, hangs: bool) -> None:
        (self.files.hung.add if hangs else self.files.hung.discard)(f"{deployment}-{name}")

    @rule(full=st.booleans())
    def the_disk_is_full(self, full: bool) -> None:
        self.ledger.full = full

    @rule(
        deployment=st.sampled_from(DEPLOYMENTS),
        name=st.sampled_from(NAMES),
        content=st.sampled_from([b"x", None]),
    )
    def somebody_changes_a_file(self, deployment: str, name: str, content: bytes | None) -> None:
        place = path(deployment, name)
        if (
            place in self.faults.foreign
            or ("File", f"{deployment}-{name}") not in self.ledger.owned
        ):
            return
        self.disk.pop(place, None)
        if content is not None:
            self.disk[place] = content

    @rule(deployment=st.sampled_from(DEPLOYMENTS), name=st.sampled_from(NAMES))
    def a_file_that_is_not_ours(self, deployment: str, name: str) -> None:
        """Where nothing of ours is or is being made."""
        place = path(deployment, name)
        wanted = ("File", f"{deployment}-{name}")
        if (
            place not in self.disk
            and wanted not in self.ledger.owned
            and wanted not in self.engine.state.desired
        ):
            self.disk[place] = self.faults.foreign[place] = b"by hand"

    @rule(seconds=st.sampled_from([0.0, 1.0, HOUR]))
    def the_agent_is_killed(self, seconds: float) -> None:
        self.run(self._stop())
        self.run(asyncio.sleep(seconds))  # type: ignore[arg-type]
        self.run(self._start())

    @rule(jump=st.sampled_from([-1_796_000_000.0, 315_000_000.0]))
    def the_wall_clock_jumps(self, jump: float) -> None:
        self.clock.offset = max(0.0, self.clock.offset + jump)

    # -- what is always so

    @invariant()
    def the_agent_lives(self) -> None:
        assert self.task is not None
        assert not self.task.done()

    @invariant()
    def what_is_not_ours_is_untouched(self) -> None:
        assert self.faults.foreign.items() <= self.disk.items()

    # -- and what is so in the end

    def teardown(self) -> None:
        try:
            self._faults_end()
            self._wait_for(self._as_wanted, 24 * HOUR)
            quiet = self.ledger.writes, len(self.plane.calls)
            self.run(asyncio.sleep(HOUR))  # type: ignore[arg-type]
            assert self._as_wanted()
            assert self.ledger.writes == quiet[0], "an idle agent writes"
        finally:
            self.run(self._stop())
            self.loop.close()

    def _faults_end(self) -> None:
        for place in self.faults.foreign:
            del self.disk[place]
        self.faults.foreign.clear()
        self.faults.errors.clear()
        self.files.hung.clear()
        self.ledger.full = False
        self.plane.lost_answers, self.plane.deaf = 0, False
        for bucket in (DESIRED, ACTUAL):
            if bucket not in self.plane.entries:
                self.plane.remake(bucket)
        self.plane.mend()
        for deployment, value in self.roster.items():
            if any(self._failed_for_good(score["name"]) for score in value["scores"]):
                self.publish(
                    deployment, dict.fromkeys(NAMES, "mended")
                )  # only another spec can help
            else:
                self.write(deployment)

    def _failed_for_good(self, name: str) -> bool:
        status = self.engine.state.statuses.get(("File", name))  # type: ignore[call-overload]
        return status is not None and status.phase == "Failed"

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        end = self.loop.passed + seconds
        while not condition():
            assert self.loop.passed < end, (
                f"not so after {seconds:.0f} s: {self.engine.statuses()}\n{self.disk}"
            )
            self.run(asyncio.sleep(1.0))  # type: ignore[arg-type]

    def _as_wanted(self) -> bool:
        wanted = {
            str(score["path"]): str(score["content"]).encode()
            for value in self.roster.values()
            for score in value["scores"]
        }
        if self.disk != wanted or set(self.engine.state.records) != set(self.engine.state.desired):
            return False
        return all(self._told(deployment, value) for deployment, value in self.roster.items())

    def _told(self, deployment: str, value: dict[str, Any]) -> bool:
        entry = self.plane.entries[ACTUAL].get(f"{DEVICE}.{deployment}")
        try:
            said = json.loads(entry.data) if entry is not None and entry.data else {}
        except ValueError:  # somebody else's
            return False
        phase = "Removed" if value.get("removed") else "Converged"
        return (said.get("phase"), said.get("generation")) == (phase, value["generation"])


def path(deployment: str, name: str) -> str:
    return f"/srv/{deployment}/{name}"


Life.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # to shrink a day takes longer than to read it
    print_blob=True,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.filter_too_much,
        HealthCheck.data_too_large,
    ],
)
TestLife = Life.TestCase
