"""The words said to tmux, and its answers. Pure.

A command goes through tmux's own parser, so each argument is quoted: every byte that isn't plain is
written as an octal escape, which the parser turns back and expands in no way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from harmony_agent.topology.sessions import NewSession, Pane, SessionMark, SessionState

_PLAIN: Final = frozenset(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=,@%+-"
)
_TAB: Final = "\t"
_OPTIONS: Final = ("installation", "deployment", "resource", "token", "spec")
SESSION, PANE = "session", "pane"
"""First field of a line, by what it is of."""
_SESSIONS: Final = _TAB.join(
    (
        SESSION,
        "#{session_id}",
        "#{session_created}",
        "#{session_attached}",
        *(f"#{{@harmony_{option}}}" for option in _OPTIONS),
        "#{session_name}",
    )
)
_PANES: Final = _TAB.join(
    (
        PANE,
        "#{session_id}",
        "#{pane_id}",
        "#{pane_pid}",
        "#{pane_dead}",
        "#{pane_dead_status}",
        "#{pane_dead_signal}",
        "#{pane_dead_time}",
        "#{@harmony_started}",
        "#{pid}",
    )
)
LIST: Final = ("list-sessions", "-F", _SESSIONS, ";", "list-panes", "-a", "-F", _PANES)
"""The one call that shows all that there is."""
GONE: Final = "gone"


def quoted(text: str) -> str:
    """One argument, as tmux's parser reads it back byte for byte."""
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in text.encode()) + '"'


def command(*words: str) -> str:
    """One command of tmux."""
    return " ".join([words[0], *(quoted(word) for word in words[1:])])


def sequence(commands: Iterable[str]) -> str:
    """Commands of which none is run after one that failed."""
    return " ; ".join(commands)


def creation(new: NewSession) -> str:
    """Create a session, and mark it before its command can end.

    What goes by the name is behind the creation in one sequence: the name is ours by then.
    ``env --`` stands before the command because tmux would give a single word to a shell.
    """
    place = ["-c", new.working_dir] if new.working_dir is not None else []
    env = [part for name, value in new.env.items() for part in ("-e", f"{name}={value}")]
    target, mark = f"={new.name}:", new.mark
    marks = (mark.installation, mark.deployment, mark.resource, mark.token, mark.spec)
    return sequence(
        [
            command("new-session", "-d", "-s", new.name, *place, *env, "--", _ENV, "--", *new.argv),
            *(
                command("set-option", "-t", target, f"@harmony_{option}", value)
                for option, value in zip(_OPTIONS, marks, strict=True)
            ),
            command("set-option", "-w", "-t", target, "remain-on-exit", "on"),
            command("set-option", "-p", "-t", target, "@harmony_started", str(new.started)),
        ]
    )


_ENV: Final = "/usr/bin/env"


def guarded(ident: str, token: str, steps: str) -> str:
    """Run `steps` if the session `ident` still has `token`; else tmux says `GONE`. The server does
    both at once. ``-F`` compares, and runs no shell.
    """
    same = f"#{{==:#{{@harmony_token}},{token}}}"
    return f"if-shell -F -t {quoted(f'{ident}:')} {quoted(same)} {{ {steps} }} {{ display-message -p {GONE} }}"


def sessions_of(output: bytes) -> list[SessionState]:
    """The sessions with their panes, from what `LIST` printed; a line of another form is left
    out.
    """
    panes: dict[str, list[Pane]] = {}
    for ident, *fields in _lines(output, PANE, _PANES):
        panes.setdefault(ident, []).append(_pane(fields[:-1]))
    return [
        SessionState(
            id=ident,
            name=name,
            created=_number(created),
            attached=_number(attached),
            mark=SessionMark(*marks) if all(marks) else None,
            panes=tuple(panes.get(ident, ())),
        )
        for ident, created, attached, *marks, name in _lines(output, SESSION, _SESSIONS)
    ]


def processes(output: bytes) -> dict[int, list[str]]:
    """The processes whose end changes a session with marks, each with the names of the resources:
    the command of each session, and the server.
    """
    resources = {
        ident: marks[_OPTIONS.index("resource")]
        for ident, _created, _attached, *marks, _name in _lines(output, SESSION, _SESSIONS)
        if all(marks)
    }
    found: dict[int, list[str]] = {}
    for ident, *fields, server in _lines(output, PANE, _PANES):
        pane = _pane(fields)
        if ident in resources and pane.main and not pane.dead:
            for process in (pane.pid, _number(server)):
                found.setdefault(process, []).append(resources[ident])
    found.pop(0, None)
    return found


def unreaped(output: bytes) -> set[int]:
    """Process ids of the server, where a terminal is closed and it doesn't know how its process
    ended.
    """
    return {
        _number(server)
        for _ident, _pane, _pid, closed, status, signal, *_rest, server in _lines(
            output, PANE, _PANES
        )
        if closed == "1" and not (status or signal) and _number(server) > 1
    }


def lines_of(output: bytes) -> list[str]:
    """The lines of a terminal, without tmux's own word of its end and the blank rest of the
    screen.
    """
    lines = [line.rstrip() for line in output.decode(errors="replace").split("\n")]
    while lines and (not lines[-1] or lines[-1].startswith("Pane is dead (")):
        lines.pop()
    return lines


def _lines(output: bytes, what: str, form: str) -> Iterator[Sequence[str]]:
    """The lines of one sort, each as the fields behind the first."""
    tabs = form.count(_TAB)
    for line in output.decode(errors="replace").split("\n"):
        first, *fields = line.split(_TAB, tabs)
        if first == what and len(fields) == tabs:
            yield fields


def _pane(fields: Sequence[str]) -> Pane:
    ident, pid, closed, status, signal, ended, started = fields
    code = _number(status) if status else 128 + _number(signal) if signal else None
    # tmux sees the closed terminal first and how the process ended a moment later: until then the
    # pane counts as alive, for nothing can be concluded from it.
    dead = closed == "1" and code is not None
    return Pane(
        id=ident,
        pid=_number(pid),
        dead=dead,
        exit_code=code if dead else None,
        main=started != "",
        started=_number(started),
        ended=_number(ended),
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
