"""The agent's frozen classes are made in one way, which costs a third of the memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.arch.tree import parsed, place, sources


def frozen_dataclasses(tree: ast.AST) -> Iterator[ast.AST]:
    """Calls of `dataclass` with ``frozen``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not ast.unparse(node.func).endswith("dataclass"):
            continue
        if any(keyword.arg == "frozen" for keyword in node.keywords):
            yield node


def test_the_rule_sees_what_it_is_for() -> None:
    text = (
        "@dataclass(frozen=True, slots=True)\nclass A: pass\n@dataclass(slots=True)\nclass B: pass"
    )
    assert len(list(frozen_dataclasses(ast.parse(text)))) == 1


def test_use_core_frozen_in_the_agent() -> None:
    assert not [
        place(path, node)
        for path in sources("harmony_agent")
        for node in frozen_dataclasses(parsed(path))
    ]
