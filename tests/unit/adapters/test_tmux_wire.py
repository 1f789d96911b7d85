"""What tmux prints, read: unit tests of the pure part."""

import pytest

from harmony_agent.adapters.tmux.wire import LIST, PANE, SESSION, sessions_of, unreaped

TAB = "\t"
SESSIONS, PANES = LIST[2], LIST[-1]


def session_line(name: str, ident: str = "$1") -> str:
    blanks = [""] * (SESSIONS.count(TAB) - 4)
    return TAB.join([SESSION, ident, "1800000000", "0", *blanks, name])


def pane_line(closed: str, status: str, signal: str) -> str:
    pane = TAB.join([PANE, "$1", "%0", "42", closed, status, signal, "", "1800000000", "7"])
    assert pane.count(TAB) == PANES.count(TAB)
    return pane


def pane_of(closed: str, status: str, signal: str) -> tuple[bool, int | None]:
    told = f"{session_line('worker')}\n{pane_line(closed, status, signal)}\n"
    [session] = sessions_of(told.encode())
    [found] = session.panes
    return found.dead, found.exit_code


def test_what_is_no_line_of_either_sort_is_left_out() -> None:
    told = "\n".join(["pane", "session\t$2", session_line("pane\t$1"), "", "other\t$1"])
    assert [(one.name, one.panes) for one in sessions_of(told.encode())] == [("pane\t$1", ())]


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


@pytest.mark.parametrize(
    ("pane", "server"),
    [
        (("0", "", ""), set()),
        (("1", "", ""), {7}),
        (("1", "0", ""), set()),
        (("1", "", "9"), set()),
    ],
)
def test_the_server_is_reminded_of_an_end_that_it_missed(
    pane: tuple[str, str, str], server: set[int]
) -> None:
    assert unreaped(pane_line(*pane).encode()) == server
