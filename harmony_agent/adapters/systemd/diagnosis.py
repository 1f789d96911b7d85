"""Ask the journal why the manager couldn't start a command, or refuses a unit's files.

The manager's own sentences may quote what a file says, such as a password in `Environment=`. So only
these leave: the program, the error's number as words, the line, and a fault from the table here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import replace
from typing import Any, Final

import anyio
import anyio.to_thread

from harmony_agent.adapters.systemd.journal import Scope, read
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import REFUSED, Complaint, Unit

PATIENCE: Final = 2.0
"""Seconds for an answer of the journal. Without one, a status says less."""
_PAUSES: Final = (0.0, 0.1, 0.3)
"""The journal may get a line a moment after the manager has told of the failure."""
_SPAWN_FAILED: Final = "641257651c1b4ec9a8624d7a40a9e1e7"
_INVALID: Final = "c772d24e9a884cbeb9ea12625c306c01"
_VERIFIERS: Final = tuple(
    f"CODE_FUNC={kind}_{verb}"
    for kind in ("service", "socket", "mount", "automount", "swap", "timer", "path", "scope")
    for verb in ("verify", "load")
)
"""Functions of the manager that judge a unit as a whole."""
_WHOLE: Final = re.compile(r"[A-Za-z0-9@:_.\\-]+: ([A-Za-z][A-Za-z=,.'() -]{0,200}) Refusing\.")
_ONE_LOAD: Final = 1_000_000
"""Microseconds within which the manager tells of all faults that it found in one load."""
_BEFORE_IT_RAN: Final = range(200, 255)
"""Exit statuses by which the manager tells that it couldn't start the command."""
_PROGRAM: Final = 200
FAULTS: Final = (
    (re.compile(r"Unknown key"), "there is no such setting in its section"),
    (re.compile(r"Unknown section"), "there is no such section"),
    (re.compile(r"Assignment outside of section"), "it stands before the first section"),
    (re.compile(r"Missing '='"), "there is no = in it"),
    (re.compile(r"Invalid section header"), "it isn't a section as [Service]"),
    (
        re.compile(r"Executable .*not absolute|Neither a valid executable name|Executable name"),
        "its program is neither a name nor an absolute path",
    ),
    (re.compile(r".*path is not absolute"), "its path isn't absolute"),
    (
        re.compile(r"Failed to resolve (unit )?specifiers"),
        "a % in it stands for nothing: write %% for a plain one",
    ),
    (re.compile(r"Unbalanced quoting|.*[Uu]nbalanced quot"), "a quote in it isn't closed"),
    (re.compile(r"Invalid environment assignment"), "it isn't NAME=value"),
    (re.compile(r"Failed to parse|.*[Ii]nvalid|Unknown"), "its value can't be read"),
)
"""How one of the manager's sentences begins, and what it means."""
OTHER_FAULT: Final = "systemd can't use it"


class Diagnosis:
    """Adds to a unit of one manager's scope what the journal tells of its failure."""

    def __init__(self, scope: Scope) -> None:
        self._scope: Scope = scope
        self._known: dict[str, tuple[str, str]] = {}
        """name -> the run that was asked about, and the answer"""

    async def complete(self, unit: Unit) -> Unit:
        """Return the unit with `spawn` and `complaints`; as it is where it didn't fail like that."""
        name = unit.name
        if unit.load_state in REFUSED:
            return replace(unit, complaints=await complaints(self._scope, unit))
        if unit.result != "exit-code" or unit.exit_status not in _BEFORE_IT_RAN:
            self._known.pop(name, None)
            return unit
        if self._known.get(name, ("", ""))[0] != unit.invocation:
            said = await spawn_error(self._scope, name, unit.invocation)
            self._known[name] = (unit.invocation, said)
        return replace(unit, spawn=self._known[name][1])


async def spawn_error(scope: Scope, name: str, invocation: str) -> str:
    """Return the program that the manager couldn't start in this run, and why; "" if it isn't told."""
    which = "USER_INVOCATION_ID" if scope == "user" else "INVOCATION_ID"
    matches = (f"MESSAGE_ID={_SPAWN_FAILED}", f"{which}={invocation}")
    for pause in _PAUSES:
        await anyio.sleep(pause)
        entries = await _entries(scope, name, matches, "EXECUTABLE,ERRNO", 1)
        if entries:
            return _spawn(entries[-1])
    return ""


async def complaints(scope: Scope, unit: Unit) -> tuple[Complaint, ...]:
    """Return the faults that the manager found when it last loaded the unit's files."""
    matches = (f"MESSAGE_ID={_INVALID}", "+", *_VERIFIERS)
    fields = "MESSAGE,CONFIG_FILE,CONFIG_LINE,MESSAGE_ID"
    written = await _written(unit)
    for pause in _PAUSES:
        await anyio.sleep(pause)
        entries = await _entries(scope, unit.name, matches, fields, 64)
        if entries and _moment(entries[-1]) > written:
            found = map(_complaint, _last_load(entries))
            return tuple(dict.fromkeys(one for one in found if one is not None))
    return ()


async def _written(unit: Unit) -> int:
    """The time at which the newest of the unit's files was written: what was said before is of
    others. Microseconds since 1970.
    """

    def look() -> int:
        newest = 0
        for path in filter(None, (unit.fragment, *unit.loaded_dropins)):
            with contextlib.suppress(OSError):
                newest = max(newest, os.lstat(path).st_mtime_ns // 1000)
        return newest

    with anyio.move_on_after(PATIENCE):
        return await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
    return 0


def _last_load(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The entries of one load: it ends where the manager refuses the whole, or a while passes."""
    load: list[dict[str, Any]] = []
    for entry in reversed(entries):
        ends = entry.get("MESSAGE_ID") != _INVALID
        if load and (ends or _moment(load[-1]) - _moment(entry) > _ONE_LOAD):
            break
        load.append(entry)
    return load[::-1]


async def _entries(
    scope: Scope, name: str, matches: tuple[str, ...], fields: str, most: int
) -> list[dict[str, Any]]:
    """The last entries of the unit that match; none if the journal doesn't say."""
    options = (f"--lines={most}", "--output=json", f"--output-fields={fields}")
    text = ""
    with anyio.move_on_after(PATIENCE):
        try:
            text = await read(scope, name, *matches, *options)
        except Transient:
            return []
    found = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found += [entry] if isinstance(entry, dict) else []
    return found


def _spawn(entry: dict[str, Any]) -> str:
    program, number = _word(entry, "EXECUTABLE"), _number(entry, "ERRNO")
    error = os.strerror(number) if number else ""
    return ": ".join(filter(None, (program, error[:1].lower() + error[1:])))


def _complaint(entry: dict[str, Any]) -> Complaint | None:
    said = entry.get("MESSAGE")
    if not isinstance(said, str):
        said = ""
    if entry.get("MESSAGE_ID") != _INVALID:
        whole = _WHOLE.fullmatch(said)
        return Complaint(whole[1].rstrip(".")) if whole else None
    path, line = _word(entry, "CONFIG_FILE"), _number(entry, "CONFIG_LINE")
    sentence = said.removeprefix(f"{path}:{line}: ")
    fault = next((words for form, words in FAULTS if form.match(sentence)), OTHER_FAULT)
    return Complaint(fault, path, line)


def _word(entry: dict[str, Any], name: str) -> str:
    """A field as one bounded word: what can't be shown is a question mark."""
    value = entry.get(name)
    if not isinstance(value, str):
        return ""
    return "".join(char if char.isprintable() else "?" for char in value[:_PROGRAM])


def _moment(entry: dict[str, Any]) -> int:
    return _number(entry, "__REALTIME_TIMESTAMP")


def _number(entry: dict[str, Any], name: str) -> int:
    value = str(entry.get(name))
    return int(value) if value.isascii() and value.isdigit() else 0
