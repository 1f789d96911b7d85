"""An operator's error says what cannot be done, and what to do next."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import typer

from harmony_fleet import errors
from harmony_fleet.cli import app
from tests.arch.tree import name_of, parsed, place, sources

KINDS = {
    name
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}


def raised() -> list[tuple[str, ast.Call]]:
    return [
        (place(path, node), node)
        for path in sources("harmony_fleet")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and name_of(node) in KINDS
    ]


def test_each_has_a_hint() -> None:
    found = raised()
    assert len(found) > 100
    without = [
        where
        for where, call in found
        if len(call.args) < 3 or (isinstance(call.args[2], ast.Constant) and not call.args[2].value)
    ]
    assert without == []


PROSE = {"that", "finds", "needs", "may", "of", "X"}
"""What follows the name in a sentence; and what is filled in."""
COMMAND = re.compile(r"\bharmony ((?:[a-z-]+|--?[a-zA-Z-]+|[A-Z]+(?:=[A-Z]+)?)(?: (?![.;,)])|\b))+")


def texts(node: ast.expr) -> Iterator[str]:
    """Each text of an expression, with a word in the place of what is filled in."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(
            str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values
        )
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from texts(child)


def unknown(words: list[str]) -> str:
    """What of a command line there isn't; empty where all is there."""
    command: Any = typer.main.get_command(app)
    for word in words:
        if word.startswith("-"):
            known = {name for item in command.params for name in (*item.opts, *item.secondary_opts)}
            if word.partition("=")[0] not in known | {"--help", "-h"}:
                return word
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return word
            command = command.commands[word]
    return "" if not hasattr(command, "commands") or not words or "--help" in words else "…"


def test_the_finder_of_commands_sees_what_is_wrong() -> None:
    assert unknown(["apply", "FILE", "--dry-run"]) == ""
    assert unknown(["fleet", "device", "set", "X", "--label"]) == ""
    assert unknown(["fleet", "devices"]) == "devices"
    assert unknown(["apply", "--no-such"]) == "--no-such"


def test_each_command_that_a_text_names_is_there_with_its_options() -> None:
    """Every text of the operator's side: hints, warnings, notes, help."""
    found = [
        (place(path, node), line)
        for path in sources("harmony_fleet")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant | ast.JoinedStr)
        for text in texts(node)
        for line in COMMAND.findall(text) and [m[0] for m in COMMAND.finditer(text)]
    ]
    assert len(found) > 60
    wrong = [
        (where, line, odd)
        for where, line in found
        if (odd := unknown([word for word in line.split()[1:] if word != "…"]))
        not in {"", "…", *PROSE}
    ]
    assert wrong == []
