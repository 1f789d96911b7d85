"""The next step: what the configuration no longer allows, who waits for whom, and the pace of starts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harmony_agent.core import claims, decide
from harmony_agent.core.actions import Act, Action, Converged, Plan, Wait
from harmony_agent.core.backoff import CrashLoop
from harmony_agent.core.decide import DecisionInput, Now, Others, RetryState
from harmony_agent.core.dependencies import Leaving
from harmony_agent.core.refusal import Refusal
from harmony_agent.core.resources import Desired, Key
from harmony_agent.core.steps import Claim, Execute, Gone, Hold
from scores.file import File
from scores.manifest import FieldError
from tests.unit.core.make import DIGEST, NOW, record, resource

KEY = Key("File", "motd")
SPEC = File(name="motd", path="/srv/motd", content="", after=["File/a"])
WRITE = Action(name="motd", reason="write it")
START = Action(name="motd", reason="it ended")
OURS = record("motd", "path:/srv/motd", applied=DIGEST)


def case(plan: Plan[Action], **fields: Any) -> DecisionInput:
    made = DecisionInput(
        KEY,
        Desired(SPEC, DIGEST, 1, "web"),
        OURS,
        plan,
        Others({Key("File", "a"): DIGEST}, {}),
        Now(100.0, NOW),
        claims=frozenset({"path:/srv/motd"}),
    )
    return replace(made, **fields)


def test_what_the_configuration_no_longer_allows_is_held_with_what_to_do() -> None:
    held = decide.not_allowed("Session")
    assert (held.phase, held.reason) == ("Blocked", "KindNotAllowed")
    assert "allow the kind Session any more: allow it, or take this out" in held.message
    assert decide.refused([]) is None
    plain = decide.refused([FieldError("path", "PathOutsideRoots"), FieldError("mode", "Setuid")])
    assert plain == Hold(
        "Blocked",
        "PathOutsideRoots",
        "the configuration doesn't allow its path any more: allow it, or take this out",
    )
    advised = decide.refused([Refusal("privileged", "NotAllowed", "name it in [podman] allow")])
    assert advised is not None
    assert advised.message.endswith("any more: name it in [podman] allow")


def test_what_never_reached_its_spec_waits_for_what_it_needs() -> None:
    new = case(Act((WRITE,)), record=None)
    assert decide.next_step(new) == Hold(
        "Pending", "WaitsFor", "waits for File/a", waits_for=("File/a",)
    )
    assert isinstance(decide.next_step(case(Act((WRITE,)))), Execute)  # it was there before
    ready = Others({Key("File", "a"): DIGEST}, {Key("File", "a"): resource("Ready")})
    assert decide.next_step(replace(new, plan=Converged(), others=ready)) == Claim()


def test_it_waits_for_what_leaves_and_has_its_path_but_for_what_it_takes_over() -> None:
    ready = {Key("File", "a"): resource("Ready")}
    old = record("old", "path:/srv/motd")
    others = Others({Key("File", "a"): DIGEST}, ready, Leaving([old]))
    new = case(Act((WRITE,)), record=None, others=others)
    assert decide.next_step(new).waits_for == ("File/old",)  # type: ignore[union-attr]
    assert decide.next_step(replace(new, taken=[old])) == Claim()


@pytest.mark.parametrize(
    ("plan", "step"),
    [
        (Converged(), Gone()),
        (Act((WRITE,)), Execute(Act((WRITE,)))),
        (Wait("Stopping", "soon", seconds=2.0), Hold("Removing", "Stopping", "soon", 2.0)),
        (Wait("NoSpace", "full", "Blocked", 9.0), Hold("Blocked", "NoSpace", "full", 9.0)),
    ],
)
def test_what_is_wanted_no_more_goes(plan: Plan[Action], step: Any) -> None:
    assert decide.next_step(case(plan, desired=None)) == step
    assert decide.next_step(case(plan, desired=None, record=None)) == Gone()


def test_what_others_that_leave_still_need_goes_after_them() -> None:
    users = [record(name, needs=("File/motd",)) for name in "abcde"]
    leaving = Others({}, {}, Leaving(users))
    step = decide.next_step(case(Act((WRITE,)), desired=None, others=leaving))
    assert isinstance(step, Hold)
    assert (step.phase, step.reason) == ("Removing", "WaitsFor")
    assert step.message == "waits for File/a, File/b, File/c and 2 more"
    assert step.waits_for == tuple(f"File/{name}" for name in "abcde")


def test_starts_are_paced_unless_the_same_pass_stopped_it() -> None:
    plan = Act((START,), is_restart=True)
    assert decide.next_step(case(plan)) == Execute(plan, "crash")
    memory = RetryState(DIGEST, crash=CrashLoop(starts=1, last=100.0))
    held = decide.next_step(case(plan, memory=memory))
    assert isinstance(held, Hold)
    assert (held.reason, held.backoff) == ("CrashLoop", True)
    assert held.seconds is not None
    assert held.seconds > 0
    assert memory.crash == CrashLoop(starts=1, last=100.0)  # to ask counts nothing
    other = case(plan, memory=memory, restarted=(type("Stop", (Action,), {}),))
    assert decide.next_step(other) == Execute(plan)


def test_only_what_is_wanted_is_claimed() -> None:
    with pytest.raises(ValueError, match="cannot claim File/motd: it is not wanted"):
        claims.claimed(case(Converged(), desired=None), {})


def test_who_gives_something_up_is_waited_for() -> None:
    hold = claims.taking([Key("File", name) for name in "abcd"])
    assert hold == Hold("Pending", "WaitsFor", "waits for File/a, File/b, File/c", 0.1)
