"""Whatever happens, wherever the agent is killed: a unit that isn't ours, or was let go of, is as
it was at the end.

A machine of random steps over units in memory: what an administrator has, apply, leave, orphan,
adopt, the agent killed ahead of any change that it asks of the manager, of the disk or of the
ledger.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import MASK, RUNNING
from tests.fakes.drive import Cut
from tests.unit.systemd_unit.bench import NAME, SLEEP, Bench, web

RUNS = settings(max_examples=250, stateful_step_count=12, deadline=None)
BEFORE = {
    "nothing": {},
    "vendor": {"vendor": True},
    "own": {"own": SLEEP},
    "own-other": {"own": f"{SLEEP}# theirs\n"},
    "masked": {"vendor": True, "own": MASK},
    "linked": {"own": "link:/srv/web.service"},
    "runtime-mask": {"vendor": True, "masked_runtime": True},
}
CONTENT = {"same": SLEEP, "other": f"{SLEEP}# ours\n", "none": None}


class _Counted(list[str]):
    """Calls the hook ahead of each entry."""

    def __init__(self, hook: Any) -> None:
        super().__init__()
        self._hook = hook

    def append(self, entry: str) -> None:
        self._hook()
        super().append(entry)


class Life(RuleBasedStateMachine):
    """One unit. `before` is how it was when it was last nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self._left = -1
        self.bench.units.calls = _Counted(self._count)
        note = self.bench.store.note

        async def noted(name: str, facts: Any) -> None:
            self._count()
            await note(name, facts)

        self.bench.store.note = noted  # type: ignore[method-assign]
        self.before, self.taken = self.state(), False

    def _count(self) -> None:
        self._left -= 1
        if self._left == -1:
            raise Cut

    def state(self) -> Any:
        units = self.bench.units
        loaded = units.loaded.get(NAME)
        running = loaded is not None and loaded.active in RUNNING
        marks = tuple(
            NAME in among for among in (units.enabled, units.enabled_runtime, units.masked_runtime)
        )
        return running, marks, dict(units.disk)

    def _free(self) -> bool:
        return self.bench.store.record(NAME) is None and self.bench.store.desired(NAME) is None

    @precondition(lambda self: self._free())
    @rule(
        form=st.sampled_from(sorted(BEFORE)),
        enabled=st.booleans(),
        enabled_runtime=st.booleans(),
        runs=st.booleans(),
    )
    def administrator(self, form: str, *, enabled: bool, enabled_runtime: bool, runs: bool) -> None:
        """Somebody has it so."""
        asyncio.run(
            self._administrator(
                BEFORE[form], enabled=enabled, enabled_runtime=enabled_runtime, runs=runs
            )
        )
        self.before, self.taken = self.state(), False

    async def _administrator(
        self, form: Any, *, enabled: bool, enabled_runtime: bool, runs: bool
    ) -> None:
        self._left = -1
        units = self.bench.units
        if NAME in units.loaded:
            await units.stop(NAME)
        units.held.clear()
        units._forget()
        units.vendor = {NAME: SLEEP} if form.get("vendor") else {}
        units.disk = {NAME: form["own"]} if "own" in form else {}
        for among, wanted in (
            (units.enabled, enabled and bool(form)),
            (units.enabled_runtime, enabled_runtime and bool(form)),
            (units.masked_runtime, "masked_runtime" in form),
        ):
            (among.add if wanted else among.discard)(NAME)
        await units.reload(NAME)
        if runs and units._load(NAME).load_state == "loaded":
            await units.start(NAME)
            units.held.clear()

    @rule(
        content=st.sampled_from(sorted(CONTENT)),
        enabled=st.sampled_from([None, True, False]),
        masked=st.sampled_from([None, False]),
        state=st.sampled_from(["running", "stopped", "none"]),
        adopt=st.booleans(),
        orphan=st.booleans(),
    )
    def want(
        self, content: str, enabled: Any, masked: Any, state: str, *, adopt: bool, orphan: bool
    ) -> None:
        """A manifest."""
        fields: dict[str, Any] = {"content": CONTENT[content], "enabled": enabled, "state": state}
        fields |= {} if masked is None or CONTENT[content] else {"masked": masked}
        on_remove = "orphan" if orphan else "delete"
        self.bench.store.set_desired(web(**fields, adopt=adopt, on_remove=on_remove))

    @rule()
    def leave(self) -> None:
        """The manifest has it no more."""
        self.bench.store.unset(NAME)

    @rule(at=st.integers(0, 14))
    def killed(self, at: int) -> None:
        """The agent is killed ahead of its change number `at`."""
        self._passes(3, at)
        self.bench.restart_agent()

    @rule()
    def settles(self) -> None:
        """It works until there is nothing to do."""
        self._passes(8, -1)

    def _passes(self, most: int, at: int) -> None:
        self._left = at
        for _ in range(most):
            had = self.bench.store.record(NAME)
            try:
                result = asyncio.run(self.bench.once())
            except (Cut, Transient):  # a link to a file that isn't there doesn't start
                break
            finally:
                self._follow(had)
            if isinstance(result.plan, Converged):
                break
        self._left = -1

    def _follow(self, had: Any) -> None:
        """What is let go of is somebody's as it is; what was as wanted, and taken without adopt, is
        ours.
        """
        record, desired = self.bench.store.record(NAME), self.bench.store.desired(NAME)
        if had is not None and record is None and had.on_remove == "orphan":
            self.before, self.taken = self.state(), False
        if had is None and record is not None and desired is not None and not desired.spec.adopt:
            own = record.facts["former"]["files"]
            _, marks, disk = self.before
            if NAME in disk and NAME not in own and desired.spec.content is not None:
                self.before, self.taken = (False, marks, {}), True

    def teardown(self) -> None:
        """It leaves: the unit is as it was."""
        self.bench.restart_agent()
        self.bench.store.unset(NAME)
        self._passes(8, -1)
        assert self.bench.store.record(NAME) is None
        assert self.bench.units.kept == {}
        now = self.state()
        if self.taken and now[1] != self.before[1]:
            assert not any(now[1]), "its links went with it, or all stayed as no spec had a say"
            now = (now[0], self.before[1], now[2])
        assert now == self.before


@pytest.mark.parametrize("form", sorted(BEFORE))
@pytest.mark.parametrize("first", sorted(CONTENT))
@pytest.mark.parametrize("then", sorted(CONTENT))
@pytest.mark.parametrize("adopt", [False, True], ids=["", "adopt"])
def test_one_spec_after_another(form: str, first: str, then: str, *, adopt: bool) -> None:
    """Each start of `Life`, each pair of specs: also where the second asks for what stands there."""
    life = Life()
    life.administrator(form, enabled=False, enabled_runtime=False, runs=False)
    for content in (first, then):
        life.want(content, None, None, "none", adopt=adopt, orphan=False)
        life.settles()
    life.teardown()


TestLife = Life.TestCase
TestLife.settings = RUNS
