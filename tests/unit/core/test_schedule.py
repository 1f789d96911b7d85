"""Times that have come, were missed, or are next."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core.schedule import BACK, LATE, MOST, Turn, turn
from scores.names import format_time, parse_time

BERLIN = ZoneInfo("Europe/Berlin")
NIGHTLY = "0 3 * * *"


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def wire(text: str) -> str:
    return format_time(at(text))


NEXT = wire("2026-11-30T03:00")


@pytest.mark.parametrize(
    ("handled", "now", "expected"),
    [
        ("2026-11-29T03:00", "2026-11-29T17:00", Turn(next=NEXT)),
        ("2026-11-29T03:00", "2026-11-30T02:59:59", Turn(next=NEXT)),
        ("2026-11-28T12:00", "2026-11-29T03:00", Turn(due=wire("2026-11-29T03:00"), next=NEXT)),
        ("2026-11-28T12:00", "2026-11-29T03:01", Turn(due=wire("2026-11-29T03:00"), next=NEXT)),
        (
            "2026-11-28T12:00",
            "2026-11-29T03:01:01",
            Turn(passed=1, last=wire("2026-11-29T03:00"), next=NEXT),
        ),
        (
            "2026-11-26T12:00",
            "2026-11-29T03:00:30",
            Turn(wire("2026-11-29T03:00"), 2, wire("2026-11-28T03:00"), NEXT),
        ),
        # set back by less than an hour: nothing comes twice
        ("2026-11-29T03:00", "2026-11-29T02:30", Turn(next=NEXT)),
        # set back by more
        (
            "2026-11-29T03:00",
            "2026-11-29T01:30",
            Turn(next=wire("2026-11-29T03:00"), anew=wire("2026-11-29T01:30")),
        ),
    ],
)
def test_a_look(handled: str, now: str, expected: Turn) -> None:
    assert turn(NIGHTLY, wire(handled), "", at(now)) == expected


def test_it_begins_with_the_first_look() -> None:
    found = turn(NIGHTLY, "", "", at("2026-11-29T17:00"))
    assert found == Turn(next=NEXT, anew=wire("2026-11-29T17:00"))


@pytest.mark.parametrize(("later", "fresh"), [(0, True), (60, True), (61, False), (-61, False)])
def test_a_run_is_fresh_for_a_minute(later: int, fresh: bool) -> None:
    began = at("2026-11-29T03:00")
    found = turn(NIGHTLY, format_time(began), format_time(began), began + timedelta(seconds=later))
    assert found.fresh is fresh


def test_where_clocks_are_set_forward_a_time_that_is_left_out_comes_right_after() -> None:
    before = datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    found = turn("30 2 * * *", format_time(before), "", before)
    assert found.next == wire("2026-03-29T01:00")  # 03:00 there


def test_where_clocks_are_set_back_a_fixed_time_comes_once_and_each_half_hour_does() -> None:
    handled = datetime(2026, 10, 25, 1, 45, tzinfo=BERLIN)
    now = datetime(2026, 10, 25, 4, 10, tzinfo=BERLIN)
    assert turn("30 2 * * *", format_time(handled), "", now).passed == 1
    assert turn("*/30 * * * *", format_time(handled), "", now).passed == 7


def test_a_year_of_minutes_is_counted_no_further_than_its_bound() -> None:
    now = at("2026-11-29T17:00:20")
    found = turn("* * * * *", wire("2025-11-29T17:00"), "", now)
    assert (found.due, found.passed) == (wire("2026-11-29T17:00"), MOST - 1)
    assert found.next == wire("2026-11-29T17:01")


MINUTES = st.integers(0, 60 * 24 * 10)


@given(st.sampled_from(["* * * * *", "*/7 * * * *", NIGHTLY, "30 2 * * *"]), MINUTES, MINUTES)
def test_every_time_is_due_missed_or_yet_to_come(cron: str, first: int, second: int) -> None:
    start = datetime(2026, 10, 20, tzinfo=BERLIN)
    handled = (start + timedelta(minutes=first)).astimezone(UTC).astimezone(BERLIN)
    now = (start + timedelta(minutes=second)).astimezone(UTC).astimezone(BERLIN)
    found = turn(cron, format_time(handled), "", now)
    if handled.astimezone(UTC) - now.astimezone(UTC) > BACK:
        assert found.anew == format_time(now)
        return
    if found.due:
        assert timedelta() <= now - parse_time(found.due) <= LATE
        assert parse_time(found.due) > handled
    if found.last:
        assert handled < parse_time(found.last) < now
        assert found.passed >= 1
    assert parse_time(found.next) > now
    again = turn(cron, found.due or found.last or format_time(handled), "", now)
    assert (again.due, again.passed, again.next) == ("", 0, found.next)
