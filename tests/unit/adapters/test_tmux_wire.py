"""What tmux prints, read: unit tests of the pure part."""

import pytest

from harmony_agent.adapters.tmux.wire import PANES, SESSIONS, sessions_of

TAB = "\t"


def pane_of(closed: str, status: str, signal: str) -> tuple[bool, int | None]:
    panes = TAB.join(["$1", "%0", "42", closed, status, signal, "", "1800000000"])
    sessions = TAB.join(["$1", "1800000000", "0", *[""] * (SESSIONS.count(TAB) - 3), "worker"])
    assert panes.count(TAB) == PANES.count(TAB)
    [session] = sessions_of(sessions.encode(), panes.encode())
    [pane] = session.panes
    return pane.dead, pane.exit_code


@pytest.mark.parametrize(
    ("closed", "status", "signal", "expected"),
    [
        ("0", "", "", (False, None)),
        ("1", "", "", (False, None)),  # the terminal is closed, the process not yet reaped
        ("1", "0", "", (True, 0)),
        ("1", "3", "", (True, 3)),
        ("1", "", "9", (True, 137)),
    ],
)
def test_a_pane_is_dead_once_tmux_knows_how_it_ended(
    closed: str, status: str, signal: str, expected: tuple[bool, int | None]
) -> None:
    assert pane_of(closed, status, signal) == expected
