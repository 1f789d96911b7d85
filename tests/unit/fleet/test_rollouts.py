"""Rollouts in any order of events: commands and controllers that read at one time and write at
another, cut off after some writes; devices that converge, fail, refuse, fall silent and come back;
operators who pause, resume, promote and undo; rosters that change meanwhile.

No wave begins before its time, no budget is broken, no device gets the same content twice in a row,
what goes back has what it had, and each rollout ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from harmony_fleet.errors import Conflict, InvalidInput, Unreachable
from harmony_fleet.manifests.signing import UNSIGNED
from harmony_fleet.observe.state import is_silent, to_desired
from harmony_fleet.rollout.apply import Run
from harmony_fleet.rollout.fleet_apply import read_fleet, write_fleet
from harmony_fleet.rollout.fleet_plan import FleetPlan, Scope, plan_fleet
from harmony_fleet.rollout.staged import begin
from harmony_fleet.rollout.staged.advance import ENDED, HAVE
from harmony_fleet.rollout.staged.record import Rollout
from harmony_fleet.rollout.staged.stage import Staged, change, decode, keep, refused, stage
from harmony_fleet.roster.model import Roster
from scores.canonical import canonical
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, TASK_RUNS, heartbeat_key
from scores.manifest import WireManifest
from scores.status import DeploymentStatus, Rejection
from tests.scale import scaled
from tests.unit.fleet.build import DIGEST, OURS
from tests.unit.fleet.upgrading import Buckets

NAMES = ("a", "b", "c", "d", "e")
DEVICE = st.sampled_from(NAMES)
NOWHERE = Path("/nonexistent/fleet")


class Host:
    """A device as its agent tells of it: it enforces what stands when it takes a turn."""

    def __init__(self, name: str, buckets: Buckets) -> None:
        self.name, self.buckets = name, buckets
        self.linked = True
        self.bad: set[str] = set()
        """contents that never converge here"""
        self.refuses: set[str] = set()
        self.enforced: WireManifest | None = None

    def silent(self) -> bool:
        entry = self.buckets.held.get((HEARTBEAT, heartbeat_key(self.name)))
        return is_silent(entry.created if entry is not None else None, self.buckets.time)

    def beat(self) -> None:
        if self.linked:
            self.buckets.tell(HEARTBEAT, heartbeat_key(self.name), b"{}")  # its time is what counts

    def turn(self) -> None:
        """Take what stands, and say how it goes."""
        entry = self.buckets.held.get((DESIRED, f"{self.name}.web"))
        if not self.linked or entry is None:
            return
        standing = to_desired(entry).manifest
        if standing is None:
            return
        word = _word(standing)
        rejected = None
        if word in self.refuses:
            rejected = Rejection(generation=standing.generation, reason="KindNotAllowed")
        else:
            self.enforced = standing
        had = self.enforced
        phase: Any = (
            "Rejected" if had is None else "Degraded" if _word(had) in self.bad else "Converged"
        )
        if had is not None and had.removed:
            phase = "Removed"
        status = DeploymentStatus(
            device=self.name,
            deployment="web",
            lineage=OURS if had is not None else None,
            generation=had.generation if had is not None else None,
            digest=DIGEST if had is not None else None,
            phase=phase,
            reason="CrashLoop" if phase == "Degraded" else "",
            rejected=rejected,
        )
        self.buckets.tell(ACTUAL, f"{self.name}.web", canonical(status.wire()))


def _word(wire: WireManifest) -> str:
    return str(getattr(wire.scores[0], "content", "")) if wire.scores else ""


@dataclass
class Looked:
    """What somebody read, and will write later."""

    staged: Staged
    plan: FleetPlan
    silent: frozenset[str]


POLICY: Any = {
    "canary": st.sampled_from([None, 1, 2]),
    "budget": st.sampled_from([1, 2, "50%"]),
    "back": st.booleans(),
}


class Rollouts(RuleBasedStateMachine):
    """Five devices, their buckets, and whoever carries the roster out."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.buckets: Any = Buckets()
        self.buckets.on_put = self._written
        self.hosts = {name: Host(name, self.buckets) for name in NAMES}
        self.generation = 1
        self.words = 0
        self.had: dict[str, bytes | None] = {}
        self.record: Rollout | None = None
        self.acting: Looked | None = None
        self.looked: list[Looked] = []
        self.policy: dict[str, Any] = {}
        for host in self.hosts.values():
            host.beat()

    def teardown(self) -> None:
        try:
            if self.policy:
                self._ends()
        finally:
            self.loop.close()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def roster(self) -> Roster:
        score = {"kind": "File", "name": "f", "path": "/srv/f", "content": f"v{self.words}"}
        one = {"name": "web", "scores": [score], "rollout": self.policy}
        return Roster.model_validate(
            {
                "version": 2,
                "lineage": OURS,
                "generation": self.generation,
                "devices": [{"name": name, "class": "pi"} for name in NAMES],
                "deployments": [one],
            }
        )

    # -- what is checked when something is written

    def _written(self, bucket: str, key: str, value: bytes) -> None:
        if bucket == TASK_RUNS:
            after = decode(self.buckets.held[bucket, key]).rollout
            if self.acting is not None and after is not None:
                self._asks(after, self.acting)
            self.record = after
        elif bucket == DESIRED:
            self._desires(key.partition(".")[0], value)

    def _asks(self, after: Rollout, looked: Looked) -> None:
        """Who is asked anew is of the lowest wave that isn't over, and within the budget."""
        before = self.record
        same = before is not None and before.content == after.content
        old = {t.device: t.state for t in before.targets} if before is not None and same else {}
        new = [
            t
            for t in after.targets
            if t.state == "asked" and old.get(t.device) in (None, "pending", "away")
        ]
        if not new or after.promoted:
            return
        waves = {t.wave for t in new}
        assert len(waves) == 1, after
        for target in after.targets:
            if target.wave < min(waves):
                assert target.state in ("succeeded", "away"), after
        out = {t.device for t in after.targets if t.state in ("asked", "ready")} | looked.silent
        assert len(out & {t.device for t in after.targets}) <= after.policy.budget(
            len(after.targets)
        ), after
        assert not {t.device for t in new} & looked.silent

    def _desires(self, name: str, value: bytes) -> None:
        """Nobody gets the same twice in a row, nor the newest before its turn."""
        wire = to_desired(self.buckets.held[DESIRED, f"{name}.web"]).manifest
        assert wire is not None
        content = wire.content()
        assert content != self.had.get(name), (name, content)
        self.had[name] = content
        record = self.record
        if record is None or record.phase == "Succeeded" or _word(wire) != f"v{self.words}":
            return
        states = {t.device: t.state for t in record.targets}
        if name in states and self._is_of(record):
            assert states[name] in HAVE, (name, record)

    def _is_of(self, record: Rollout) -> bool:
        """Whether the record is of what the roster wants now."""
        return record.roster_generation == self.generation

    # -- operators

    @initialize(**POLICY)
    def first(self, canary: int | None, budget: Any, back: bool) -> None:
        self._policy(canary, budget, back)

    def _policy(self, canary: int | None, budget: Any, back: bool) -> None:
        self.policy = {
            "max_unavailable": budget,
            "wave_timeout": "2m",
            "min_ready": "10s",
            "on_failure": "rollback" if back else "pause",
            **({"canary": canary} if canary else {}),
        }

    @rule(bad=st.sets(DEVICE, max_size=2), refuses=st.sets(DEVICE, max_size=1))
    def new_content(self, bad: set[str], refuses: set[str]) -> None:
        self.words += 1
        self.generation += 1
        for name in bad:
            self.hosts[name].bad.add(f"v{self.words}")
        for name in refuses:
            self.hosts[name].refuses.add(f"v{self.words}")

    @precondition(lambda self: self.record is not None)
    @rule(how=st.sampled_from(["pause", "resume", "promote", "undo"]))
    def steer(self, how: str) -> None:
        with contextlib.suppress(InvalidInput):  # what means nothing in its phase
            self.run(change(self.buckets, "web", getattr(begin, how), UNSIGNED))

    # -- whoever carries it out

    @rule()
    def look(self) -> None:
        self.looked = [*self.looked, self.run(self._look())][-2:]

    async def _look(self) -> Looked:
        fleet = await read_fleet(self.buckets, self.roster, NOWHERE)
        staged = await stage(self.buckets, fleet)
        made = plan_fleet(staged.fleet, Scope(allow_removals=len(NAMES), allow_prune=1000))
        silent = frozenset(name for name, host in self.hosts.items() if host.silent())
        return Looked(refused(staged, made.refusals), made, silent)

    @precondition(lambda self: self.looked)
    @rule(which=st.integers(0, 1), writes=st.sampled_from([None, None, 0, 1, 2, 3]))
    def act(self, which: int, writes: int | None) -> None:
        """Write what was read at some time before; perhaps cut off."""
        looked = self.looked.pop(which % len(self.looked))
        if looked.staged.ungated.roster.generation != self.generation:
            return  # the mark in the bucket keeps older rosters off
        self._act(looked, writes)

    def _act(self, looked: Looked, writes: int | None) -> None:
        self.buckets.writes, self.acting = writes, looked
        try:
            self.run(self._write(looked))
        except (Unreachable, Conflict):
            pass
        finally:
            self.buckets.writes, self.acting = None, None

    async def _write(self, looked: Looked) -> None:
        await keep(self.buckets, looked.staged)
        await write_fleet(self.buckets, looked.plan, Run())

    @rule(writes=st.sampled_from([None, None, None, 1, 2]))
    def step(self, writes: int | None) -> None:
        self._act(self.run(self._look()), writes)

    # -- devices

    @rule(names=st.sets(DEVICE, min_size=1))
    def turn(self, names: set[str]) -> None:
        for name in sorted(names):
            self.hosts[name].turn()

    @rule(name=DEVICE, up=st.booleans())
    def link(self, name: str, up: bool) -> None:
        self.hosts[name].linked = up
        self.hosts[name].beat()

    @rule(name=DEVICE)
    def mend(self, name: str) -> None:
        self.hosts[name].bad.clear()
        self.hosts[name].turn()

    @rule(seconds=st.sampled_from([1, 11, 31, 130]))
    def wait(self, seconds: int) -> None:
        self._wait(seconds)

    def _wait(self, seconds: int) -> None:
        self.buckets.time += timedelta(seconds=seconds)
        for host in self.hosts.values():
            host.beat()

    # -- the end

    def _ends(self) -> None:
        """With everybody back, each rollout ends or waits for a person; told so, it ends well."""
        for host in self.hosts.values():
            host.linked = True
        self._settle()
        record = self.record
        if record is None:
            return
        assert record.phase in (*ENDED, "Paused"), record
        if record.phase == "RolledBack":
            for target in record.targets:
                if target.state == "returned" and target.before:
                    self._has_what_it_had(target.device, target.before)
        for host in self.hosts.values():
            host.bad.clear()
            host.refuses.clear()
            host.turn()
        if record.phase != "Succeeded":
            self.steer("resume")
            self._settle()
        assert self.record is not None
        assert self.record.phase == "Succeeded", self.record.wire()
        words = {
            _word(to_desired(self.buckets.held[DESIRED, f"{name}.web"]).manifest) for name in NAMES
        }  # type: ignore[arg-type]
        assert words == {f"v{self.words}"}

    def _settle(self) -> None:
        for _ in range(60):
            self.step(None)
            for host in self.hosts.values():
                host.turn()
            self._wait(11)

    def _has_what_it_had(self, name: str, revision: int) -> None:
        log = self.run(self.buckets.history(DESIRED, f"{name}.web"))
        former = next(to_desired(entry).manifest for entry in log if entry.revision == revision)
        standing = to_desired(self.buckets.held[DESIRED, f"{name}.web"]).manifest
        assert former is not None
        assert standing is not None
        assert standing.content() == former.content()


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(
    max_examples=scaled(60, 2000), stateful_step_count=40, deadline=None
)
