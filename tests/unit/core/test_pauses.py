"""A pause lasts as long as was asked, and never longer, whatever the clocks do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core import pauses
from harmony_agent.core.changes import Moment
from harmony_agent.core.pauses import Pause
from scores.pause import MAX_SECONDS

START = 1_796_000_000


def at(monotonic: float, wall: float, boot: str = "1") -> Moment:
    return Moment(boot, int(monotonic * 1e6), int((START + wall) * 1e6))


def test_it_ends_in_its_time() -> None:
    made = pauses.paused("web", 7200, at(100, 0))
    assert made.until == "2026-11-30T02:53:20.000Z"
    assert (made.after(at(100, 0)), made.after(at(7300, 0))) == (7200, 0)


def test_no_jump_of_the_wall_clock_changes_it() -> None:
    made = pauses.paused("web", 7200, at(100, 0))
    for wall in (-1e9, 1e9):
        assert made.after(at(200, wall)) == 7100
        assert made.after_start(at(200, wall)) == 7100  # the agent started again in this boot


def test_the_time_that_the_device_was_off_counts_by_the_wall_clock() -> None:
    made = pauses.paused("web", 7200, at(100, 0))
    assert made.after_start(at(5, 600, "2")) == 6600
    assert made.after_start(at(5, 7300, "2")) < 0
    assert (
        made.after_start(at(5, -1e6, "2")) == 7200
    )  # the clock went back: the rest counts from now on


def test_a_boot_that_has_no_name_is_another() -> None:
    made = pauses.paused("web", 7200, at(100, 0, ""))
    assert made.after_start(at(5, 600, "")) == 6600


def test_the_end_that_is_shown_moves_only_with_the_clock() -> None:
    made = pauses.paused("web", 7200, at(100, 0))
    later = pauses.anew(made, made.after(at(160.4, 60)), at(160.4, 60))
    assert (later.until, later.after(at(160.4, 0))) == (made.until, 7139.6)
    set_ = pauses.anew(later, 7000, at(300, 86_400))
    assert set_.until == "2026-12-01T02:50:00.000Z"


def test_which_pause_holds() -> None:
    web, all_ = pauses.paused("web", 60, at(0, 0)), pauses.paused("*", 600, at(0, 0))
    assert pauses.of([web, all_], "web") == all_
    assert pauses.of([web, all_], "db") == all_
    assert pauses.of([web], "db") is None
    longer = pauses.paused("web", 6000, at(0, 0))
    assert pauses.of([longer, all_], "web") == longer


TIMES = st.integers(min_value=-(10**15), max_value=10**15)


@given(
    seconds=st.integers(min_value=1, max_value=10**9),
    lives=st.lists(
        st.tuples(st.booleans(), st.integers(min_value=0, max_value=100_000), TIMES), max_size=20
    ),
)
def test_never_longer_than_was_asked(seconds: int, lives: list[tuple[bool, int, int]]) -> None:
    """Whatever reboots, and wherever the wall clock stands: the seconds that the device was on
    and paused are at most those that were asked, and a week.
    """
    boot, monotonic = 1, 0.0
    pause: Pause | None = pauses.paused("web", seconds, at(0, 0))
    on = 0.0
    for reboots, passed, wall in lives:
        assert pause is not None
        now = Moment(str(boot), int((monotonic + passed) * 1e6), wall)
        left = pause.after(now)
        on += min(passed, passed + left)
        if left <= 0:
            break
        pause = pauses.anew(pause, left, now)
        monotonic += passed
        if reboots:
            boot, monotonic = boot + 1, 0.0
            begins = Moment(str(boot), 0, -wall)
            left = pause.after_start(begins)
            if left <= 0:
                break
            pause = pauses.anew(pause, left, begins)
    assert on <= min(seconds, MAX_SECONDS)
