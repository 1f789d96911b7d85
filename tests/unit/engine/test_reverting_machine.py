"""Generations that are tried, in any order of good and bad ones, kills between two writes, boots, wrong clocks and a
network that comes and goes.

What the device went back from never comes back. It goes back to nothing but what was good, once. In the end the
device is as the manifest that it says it enforces.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from harmony_agent.core.errors import Transient
from harmony_agent.core.reverts import GRACE_SECONDS, KEEP_SECONDS
from scores.keys import DESIRED
from tests.fakes.ledger import FakeLedger
from tests.scale import FULL, scaled
from tests.unit.engine.world import DEVICE, World, file

SPAN = 60


class CutLedger(FakeLedger):
    """A disk that is gone after some writes, as for a process that is killed then."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.seen: Callable[[], None] = lambda: None
        """called before each write"""

    async def _write(self) -> None:
        self.seen()
        if self.left == 0:
            raise Transient("LedgerUnwritable", "killed")
        if self.left is not None:
            self.left -= 1
        await super()._write()


class Reverts(RuleBasedStateMachine):
    """One device and its deployment `web`."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.ledger = CutLedger()
        self.world.ledger = self.ledger
        self.ledger.seen = self._note
        self.generation = 0
        self.contents: dict[int, tuple[dict[str, Any], ...]] = {}
        self.spans: dict[int, bool] = {}
        self.good: set[int] = set()
        self.refused: set[int] = set()
        self.enforced = 0
        self.boots = 0

    def teardown(self) -> None:
        try:
            self._in_the_end()
        finally:
            self.run(self.world.stop())
            self.world.loop.close()

    def run(self, work: Any) -> Any:
        return self.world.loop.run_until_complete(work)

    # -- what happens

    @initialize()
    def the_first(self) -> None:
        self.run(self._start())
        self.publish(good=True, tried=False, drops=False)
        self.passes(30)

    async def _start(self) -> None:
        await self.world.start()

        def fail(call: str, name: str) -> None:
            if call == "apply" and name == "bad":
                raise Transient("DiskBroken", "no such disk")

        self.world.files.before = fail

    @rule(good=st.booleans(), tried=st.sampled_from([True, True, False]), drops=st.booleans())
    def publish(self, good: bool, tried: bool, drops: bool) -> None:
        """The next generation: one that converges or not, and that may drop a file."""
        self.generation += 1
        scores = [file("a", content=str(self.generation))]
        scores += [] if drops else [file("b")]
        scores += [] if good else [file("bad")]
        self.contents[self.generation] = tuple(scores)
        self.spans[self.generation] = tried
        more = {"revert_after": f"{SPAN}s"} if tried else {}
        self.world.publish(self.generation, *scores, allow_prune=2, **more)

    @rule()
    def the_same_again(self) -> None:
        entry = self.world.plane.entries[DESIRED][f"{DEVICE}.web"]
        self.world.plane.set(DESIRED, f"{DEVICE}.web", entry.data)

    @rule(seconds=st.sampled_from([1, 10, 40, 100, 300]))
    def passes(self, seconds: int) -> None:
        self.run(self._pass(seconds))

    async def _pass(self, seconds: int) -> None:
        for _ in range(seconds):
            await asyncio.sleep(1)
            self._see()

    @rule(writes=st.integers(0, 3), seconds=st.sampled_from([0, 5, 70]), booted=st.booleans())
    def killed(self, writes: int, seconds: int, booted: bool) -> None:
        """Killed after some more writes; the device may boot anew."""
        self.ledger.left = writes
        self.passes(seconds)
        self.run(self.world.stop())
        self.ledger.left = None
        if booted:
            self.boots += 1
            self.world.boot = f"boot {self.boots}"
        self.run(self._start())
        self._see()

    @rule(seconds=st.sampled_from([-10_000_000, -100, 100, 10_000_000]))
    def clock_jumps(self, seconds: int) -> None:
        self.world.clock.offset += seconds

    @rule(up=st.booleans())
    def link(self, up: bool) -> None:
        if up:
            self.world.plane.mend()
        else:
            self.world.plane.cut()

    # -- what always holds

    def _wanted(self, generation: int) -> dict[str, bytes]:
        """The disk as this generation wants it, without what never comes up."""
        return {
            score["path"]: score["content"].encode()
            for score in self.contents[generation]
            if score["name"] != "bad"
        }

    def _bad(self, generation: int) -> bool:
        return any(score["name"] == "bad" for score in self.contents[generation])

    def _note(self) -> None:
        """Note a generation that is complete, if only until the next is accepted. What it doesn't
        want may still stand, unless a trial runs.
        """
        entry = self.world.engine.state.deployments.get("web")
        if entry is not None and entry.stored is not None:
            now = entry.stored.generation
            wanted, disk = self._wanted(now), self.world.disk
            tried = self.world.engine.state.fallbacks.of("web").tried(entry.stored)
            complete = disk == wanted or (tried is None and wanted.items() <= disk.items())
            if complete and not self._bad(now):
                self.good.add(now)

    def _see(self) -> None:
        entry = self.world.engine.state.deployments.get("web")
        if entry is None or entry.stored is None:
            return
        now = entry.stored.generation
        if now < self.enforced:
            assert now in self.good, (now, self.good)
            assert self.spans[self.enforced], self.enforced
            assert entry.refused is not None
            self.refused.add(self.enforced)
        self.enforced = now
        assert now not in self.refused
        if entry.refused is not None:
            self.refused.add(entry.refused.generation)
            assert entry.refused.generation > now
        [status] = self.world.engine.statuses()
        self._note()
        if status.phase == "Converged":
            assert not self._bad(now)
            assert self.world.disk == self._wanted(now)
        assert status.generation == now

    @invariant()
    def what_was_refused_stays_refused(self) -> None:
        self._see()

    # -- and in the end

    def _in_the_end(self) -> None:
        """Each trial has ended; the device is as the newest manifest, or as the last good one."""
        self.link(up=True)
        self.passes(SPAN + int(GRACE_SECONDS + 2 * KEEP_SECONDS))
        assert not list(
            self.world.engine.state.fallbacks.tried(
                {"web": self.world.engine.state.deployments["web"].stored}  # type: ignore[dict-item]
            )
        )
        if not self._bad(self.generation) or not self.spans[self.generation]:
            if self.generation not in self.refused:
                assert self.enforced == self.generation
        elif self.enforced != self.generation:
            assert self.generation in self.refused
            said = self.world.said()
            assert (said["phase"], said["reason"]) == ("Rejected", "Reverted")
            assert (said["generation"], said["rejected"]["generation"]) == (
                self.enforced,
                self.generation,
            )
        assert self.world.disk == self._wanted(self.enforced)
        assert json.dumps(self.world.said()).count("no such disk") <= 3


TestReverts = Reverts.TestCase
TestReverts.settings = settings(
    max_examples=scaled(25, 400),
    stateful_step_count=25,
    deadline=None,
    # To make a failure smaller takes minutes: the long run does.
    phases=tuple(Phase) if FULL else (Phase.explicit, Phase.reuse, Phase.generate),
)


def test_converged_for_a_moment_before_the_next_is_enough_to_go_back_to() -> None:
    """Generation 2 is complete at last after a kill, and in that moment generation 3 comes."""
    device = Reverts()
    device.the_first()
    device.publish(good=True, tried=True, drops=True)
    device.killed(writes=2, seconds=70, booted=False)
    assert device.good == {1}
    device.publish(good=False, tried=True, drops=True)
    device.passes(1)
    assert device.good == {1, 2}
    device.link(up=False)
    device.teardown()
    assert (device.enforced, device.refused) == (2, {3})
