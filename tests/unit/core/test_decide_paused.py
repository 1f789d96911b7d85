"""What is paused is observed and told; nothing that changes the device is decided."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core import decide
from harmony_agent.core.actions import Act, Action, Converged, Plan, Wait
from harmony_agent.core.decide import DecisionInput, Now, Others
from harmony_agent.core.resources import Desired, Key
from harmony_agent.core.steps import Claim, Execute, Gone, Hold, Release, Report, Settled
from scores.file import File
from tests.unit.core.make import DIGEST, NOW, OTHER, record

UNTIL = "2026-11-29T19:00:00.000Z"
SPEC = File(name="motd", path="/srv/motd", content="")
WANTED = Desired(SPEC, DIGEST, 1, "web")
WRITE = Action(name="motd", reason="write it")
OURS = record("motd", "path:/srv/motd", applied=DIGEST)


def case(plan: Plan[Action], **fields: Any) -> DecisionInput:
    made = DecisionInput(
        Key("File", "motd"),
        WANTED,
        OURS,
        plan,
        Others({}, {}),
        Now(0.0, NOW),
        claims=frozenset({"path:/srv/motd"}),
        paused=UNTIL,
    )
    return replace(made, **fields)


KEPT = f"paused until {UNTIL}; then: write it"


@pytest.mark.parametrize(
    ("found", "phase", "reason"),
    [
        (case(Act((WRITE,), is_restart=True)), "Degraded", "Paused"),
        (case(Act((WRITE,), drift=False)), "Degraded", "Paused"),
        (case(Act((WRITE,)), record=replace(OURS, applied=OTHER)), "Blocked", "Paused"),
        (case(Act((WRITE,)), record=replace(OURS, spec_digest=OTHER, applied="")), "Blocked", "Paused"),
        (case(Act((replace(WRITE, is_disruptive=False),)), record=None), "Blocked", "Paused"),
        (case(Act((WRITE,), ahead=True), record=replace(OURS, applied="")), "Blocked", "Paused"),
        (case(Act((WRITE,)), desired=None), "Removing", "Paused"),
    ],
)  # fmt: skip
def test_what_would_change_something_waits(found: DecisionInput, phase: str, reason: str) -> None:
    assert decide.next_step(found) == Hold(phase, reason, KEPT)  # type: ignore[arg-type]
    assert isinstance(decide.next_step(replace(found, paused="")), Execute | Claim)


def test_drift_is_told_as_with_drift_report() -> None:
    found = case(Act((WRITE,), ("content",)))
    step = decide.next_step(found)
    assert isinstance(step, Report)
    assert (step.message, step.episode.action) == ("write it", "reported")
    reporting = SPEC.model_copy(update={"drift": "report"})
    without = replace(found, paused="", desired=replace(WANTED, spec=reporting))
    assert decide.next_step(without) == step


def test_also_drift_that_is_contended() -> None:
    memory = decide.RetryState(DIGEST)
    for _ in range(6):
        step = decide.next_step(case(Act((WRITE,), ("content",)), paused="", memory=memory))
        if isinstance(step, Execute):
            memory.episode = step.episode
            assert memory.episode is not None
            memory.episode.repaired(0.0)
    assert isinstance(step, Hold)
    assert step.reason == "Contended"
    assert isinstance(decide.next_step(case(Act((WRITE,), ("content",)), memory=memory)), Report)


@pytest.mark.parametrize(
    "plan", [Converged(), Converged("Completed"), Wait("ImagePulling"), Wait("x", phase="Blocked")]
)
def test_what_changes_nothing_is_as_ever(plan: Plan[Action]) -> None:
    for found in (case(plan), case(plan, desired=None), case(plan, record=None)):
        assert decide.next_step(found) == decide.next_step(replace(found, paused=""))


def test_a_release_waits_and_what_is_not_ours_does_not() -> None:
    orphan = replace(OURS, on_remove="orphan")
    assert decide.without_a_look(orphan) == Release()
    held = decide.without_a_look(orphan, UNTIL)
    assert held == Hold("Removing", "Paused", f"paused until {UNTIL}; then: release it")
    assert decide.without_a_look(None, UNTIL) == Gone()
    assert decide.without_a_look(OURS, UNTIL) is None


@given(
    plan=st.builds(
        Act,
        st.just((WRITE,)),
        fields=st.just(("content",)),
        is_restart=st.booleans(),
        drift=st.booleans(),
        ahead=st.booleans(),
    )
    | st.just(Converged())
    | st.just(Wait("x")),
    applied=st.sampled_from(["", DIGEST, OTHER]),
    digest=st.sampled_from([DIGEST, OTHER]),
    owned=st.booleans(),
    wanted=st.booleans(),
    idle=st.booleans(),
    acted=st.booleans(),
)
def test_nothing_is_executed_whatever_the_case(
    plan: Plan[Action], applied: str, digest: str, **facts: bool
) -> None:
    mine = replace(OURS, applied=applied, spec_digest=digest) if facts["owned"] else None
    desired = WANTED if facts["wanted"] else None
    found = case(plan, record=mine, desired=desired, idle=facts["idle"], acted=facts["acted"])
    step = decide.next_step(found)
    assert not isinstance(step, Execute | Release)
    assert not isinstance(plan, Act) or isinstance(step, Hold | Report | Gone)
    assert isinstance(step, Settled | Gone | Claim | Report | Hold)
