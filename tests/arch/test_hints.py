"""An operator's error says what cannot be done, and what to do next."""

from __future__ import annotations

import ast

from harmony_fleet import errors
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
