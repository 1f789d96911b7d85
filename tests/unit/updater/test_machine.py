"""The one table: whole, without a way out of an end, and every phase is reached."""

from typing import get_args

from harmony_updater.machine import TERMINAL, TRANSITIONS, Event
from harmony_updater.protocol import Phase

PHASES, EVENTS = set(get_args(Phase)), set(get_args(Event))


def test_every_phase_and_every_event_is_in_the_table() -> None:
    assert set(TRANSITIONS) == PHASES
    assert {event for row in TRANSITIONS.values() for event in row} == EVENTS
    assert {phase for row in TRANSITIONS.values() for phase in row.values()} <= PHASES


def test_an_end_is_an_end() -> None:
    assert frozenset({"complete", "failed", "repair-required"}) == TERMINAL
    for phase in TERMINAL:
        assert set(TRANSITIONS[phase].values()) <= {phase}
    for phase in PHASES - TERMINAL:
        assert TRANSITIONS[phase]


def test_every_phase_is_reached_from_the_first_and_reaches_an_end() -> None:
    def reached(start: str) -> set[str]:
        seen, todo = set(), [start]
        while todo:
            phase = todo.pop()
            if phase not in seen:
                seen.add(phase)
                todo += TRANSITIONS[phase].values()
        return seen

    assert reached("preflight") == PHASES
    assert all(reached(phase) & TERMINAL for phase in PHASES)


def test_complete_needs_a_verification_after_a_new_boot_or_that_nothing_was_changed() -> None:
    assert {
        (p, e) for p, row in TRANSITIONS.items() for e, to in row.items() if to == "complete"
    } == {
        ("verifying", "verified"),
        ("applying", "unchanged"),
    }
    assert {
        (p, e) for p, row in TRANSITIONS.items() for e, to in row.items() if to == "verifying"
    } == {("rebooting", "rebooted")}


def test_apt_is_entered_once_and_never_again() -> None:
    assert {
        (p, e) for p, row in TRANSITIONS.items() for e, to in row.items() if to == "applying"
    } == {("preflight", "started")}
    after, todo = set(), ["applying"]
    while todo:
        phase = todo.pop()
        for to in TRANSITIONS[phase].values():
            if to not in after:
                after.add(to)
                todo.append(to)
    assert "preflight" not in after
    assert "applying" not in after
