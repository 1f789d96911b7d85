"""When a process is to read anew what changed: by the boot's own clock where both have it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harmony_agent.core.actions import Act, Action
from harmony_agent.core.changes import (
    Moment,
    first_token,
    is_change,
    is_due,
    newest,
    of_this_form,
)
from tests.unit.core.make import DIGEST, OTHER, record

AT = Moment("b-1", 100, 5_000)
TOKEN = "b1:100:5000"
STEP = Action(name="a", reason="content differs")


def test_a_moment_is_read_as_it_is_written() -> None:
    assert str(AT) == TOKEN
    assert Moment.parse(TOKEN) == replace(AT, boot="b1")
    for text in ("", "sha256:12", "b:1", "b:1:2:3", "b:1:x"):
        assert Moment.parse(text) is None


@pytest.mark.parametrize(
    ("noted", "started", "due"),
    [
        ("", Moment("b-1", 99, 9_000), True),  # the wall clock was set back since
        ("", Moment("b-1", 101, 1), False),
        ("", Moment("b-1", 0, 4_999), True),  # only the wall clock is known
        ("", Moment("b-1", 0, 5_000), False),
        ("", Moment("b-2", 1, 1), False),  # it was started in a later boot
        ("", None, False),
        (TOKEN, Moment("b-1", 1, 1), False),
        ("b1:99:4000", Moment("b-1", 1, 1), True),
        ("b1:101:6000", Moment("b-1", 1, 1), False),  # a later change was read
        ("b0:900:1", Moment("b-1", 1, 1), True),
        ("sha256:12", Moment("b-1", 1, 1), True),  # of an agent of before
    ],
)
def test_what_started_before_a_change_is_due_once(
    noted: str, started: Moment | None, due: bool
) -> None:
    assert is_due(TOKEN, noted, started) is due


def test_nothing_is_due_without_a_token_and_a_text_asks_once() -> None:
    assert not is_due("", "x", None)
    assert is_due("two", "one", None)
    assert not is_due("two", "two", None)


def test_a_first_token_is_noted_unless_the_start_decides() -> None:
    assert first_token("old", "new") == "old"
    assert first_token("", "new") == "new"
    assert first_token("", TOKEN) == first_token("old", "") == ""


def test_the_newest_is_the_last_by_the_wall() -> None:
    assert newest([]) == newest([""]) == ""
    assert newest(["b0:900:1", TOKEN, ""]) == TOKEN


@pytest.mark.parametrize(
    ("applied", "now"),
    [
        ("", ""),
        (DIGEST, DIGEST),
        (f"{DIGEST}+{OTHER}", DIGEST),
        (f"{DIGEST}++{OTHER}-", f"{DIGEST}-"),
        (f"{DIGEST}+{TOKEN}", f"{DIGEST}+{TOKEN}"),
    ],
)
def test_what_an_agent_of_before_reached_is_reached(applied: str, now: str) -> None:
    assert of_this_form(record("a", applied=applied)).applied == now


@pytest.mark.parametrize(
    ("plan", "changes"),
    [
        (Act((STEP,), ("content",)), True),
        (Act((STEP,)), True),
        (Act((STEP,), ("state",)), False),
        (Act((STEP,), ("content", "state")), True),
        (Act((STEP,), is_restart=True), False),
        (Act((STEP,), ahead=True), False),
        (Act((STEP,), for_others=True), False),
        (Act((STEP,), drift=False), False),
    ],
)
def test_what_is_a_change_for_others(plan: Act[Action], changes: bool) -> None:
    assert is_change(plan) is changes
