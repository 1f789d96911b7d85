"""Two operators with copies of one home, at one real server: edits, backups, restores, applies,
pulls and take-overs, enrolments and revocations in any order.

Nothing that was applied is undone without a word, and no revoked device comes back. Clocks aren't
moved here: neither the mark nor a record holds a time.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from harmony_fleet.nats.kv import Store
from harmony_fleet.roster.file import RosterFile
from scores.keys import DESIRED
from tests.integration.operator import a_file
from tests.integration.test_authority_copies import Command, let_in
from tests.natsauthority import GuardedServer
from tests.scale import scaled

WHO = st.sampled_from([0, 1])


@dataclass(frozen=True)
class Known:
    """What a home is known to hold: the versions of its roster, the newest last, and its devices."""

    had: tuple[int, ...] = ()
    devices: frozenset[str] = field(default=frozenset())


class Week(RuleBasedStateMachine):
    """One fleet, two homes, and a place for backups."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="harmony-week-"))
        self.loop = asyncio.new_event_loop()
        self.server = GuardedServer(self.folder / "s").start()
        self.numbers = iter(range(1, 10**6))
        self.homes: list[Command] = []
        self.known: list[Known] = []
        self.saved: Known | None = None
        self.applied = Known()
        self.creds: dict[str, Path] = {}
        self.revoked: set[str] = set()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def code(self, who: int, *words: str) -> int:
        done = self.run(self.homes[who](*words))
        assert done.code in (0, 2, 3, 5), (words, done)
        assert "Traceback" not in done.err, done.err
        self.said = done.err
        return int(done.code)

    def ok(self, who: int, *words: str) -> None:
        assert self.code(who, *words) == 0, (words, self.said)

    @initialize()
    def two_homes(self) -> None:
        self.homes = [Command(self.server, self.server.home)]
        self.ok(0, "server", "push")
        self.ok(0, "fleet", "init")
        scores = self.homes[0].file("base", a_file())
        words = ("deployment", "add", "base", "-f", scores, "--inline", "--class", "web", "-g", "1")
        self.ok(0, "fleet", *words)
        self.homes.append(self.homes[0].copy("second"))
        self.known = [Known((next(self.numbers),))] * 2

    def changed(self, who: int, *devices: str) -> None:
        was = self.known[who]
        self.known[who] = Known((*was.had, next(self.numbers)), was.devices | set(devices))

    # -- rosters

    @rule(who=WHO)
    def edit(self, who: int) -> None:
        name = f"d{next(self.numbers)}"
        generation = RosterFile(self.homes[who].home).read().generation
        self.ok(who, "fleet", "device", "add", name, "--class", "web", "-g", str(generation))
        self.changed(who, name)

    @rule(who=WHO, take_over=st.booleans())
    def apply(self, who: int, take_over: bool) -> None:
        behind = bool(self.applied.had) and self.applied.had[-1] not in self.known[who].had
        code = self.code(
            who, "fleet", "apply", "--no-wait", *(["--take-over"] if take_over else [])
        )
        if behind and not take_over:
            assert code == 3, "an apply undid what another had applied, and said nothing"
            assert "harmony fleet pull" in self.said
        elif not behind:
            assert code == 0, self.said
        if code == 0:
            if take_over and behind:
                self.changed(who)
            self.applied = self.known[who]
        self.run(self._stands())

    async def _stands(self) -> None:
        async with Store(self.server.context()) as store:
            found = await store.entries(DESIRED)
        wanted = {
            key.partition(".")[0]
            for key, entry in found.items()
            if b'"removed":true' not in (entry.value or b"")
        }
        assert wanted == self.applied.devices

    @precondition(lambda self: self.applied.had)
    @rule(who=WHO)
    def pull(self, who: int) -> None:
        self.ok(who, "fleet", "pull")
        self.known[who] = self.applied

    # -- copies

    @rule(who=WHO)
    def back_up(self, who: int) -> None:
        shutil.rmtree(self.folder / "saved", ignore_errors=True)
        shutil.copytree(self.homes[who].home, self.folder / "saved")
        self.saved = self.known[who]

    @precondition(lambda self: self.saved is not None)
    @rule(who=WHO)
    def restore(self, who: int) -> None:
        assert self.saved is not None
        shutil.rmtree(self.homes[who].home)
        shutil.copytree(self.folder / "saved", self.homes[who].home)
        self.known[who] = replace(self.saved)

    # -- devices

    @rule(who=WHO)
    def enroll(self, who: int) -> None:
        name = f"pi-{next(self.numbers)}"
        creds = self.run(self.homes[who].bundle(name))
        kept = self.folder / creds.name
        shutil.copy(creds, kept)
        self.creds[name] = kept
        assert self.run(let_in(self.server, kept))

    @precondition(lambda self: set(self.creds) - self.revoked)
    @rule(who=WHO, data=st.data())
    def revoke(self, who: int, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(set(self.creds) - self.revoked)))
        self.ok(who, "device", "revoke", name)
        self.revoked.add(name)
        assert not self.run(let_in(self.server, self.creds[name]))

    @rule(who=WHO)
    def push(self, who: int) -> None:
        self.ok(who, "server", "push")
        if self.revoked:
            assert not self.run(let_in(self.server, self.creds[min(self.revoked)]))

    def teardown(self) -> None:
        try:
            for name, creds in self.creds.items():
                assert self.run(let_in(self.server, creds)) == (name not in self.revoked), name
        finally:
            self.server.stop()
            self.loop.close()
            shutil.rmtree(self.folder, ignore_errors=True)


Week.TestCase.settings = settings(
    max_examples=scaled(3, 100),
    stateful_step_count=scaled(14, 40),
    deadline=None,
    phases=[Phase.generate],  # a failing run is told as it is: each takes seconds
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.timeout(7200 if scaled(0, 1) else 300)
class TestWeek(Week.TestCase):  # type: ignore[misc, name-defined]
    """Any order of what two operators do."""
