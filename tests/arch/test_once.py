"""Objects are constructed once: no attribute waits for somebody to put the real hook there."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.arch.tree import parsed, place, sources


def placeholders(tree: ast.AST) -> Iterator[ast.AST]:
    """Assignments of a lambda to an attribute: a hook that is replaced later."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, ast.Lambda):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Attribute) for target in targets):
                yield node


def test_the_rule_sees_what_it_is_for() -> None:
    text = "self.on_unit: Callable[[str], None] = lambda _path: None\nbus.on_unit = lambda _p: None"
    assert len(list(placeholders(ast.parse(text)))) == 2
    assert not list(placeholders(ast.parse("def f(hook=lambda: None): self.hook = hook")))


def test_no_hook_is_put_in_later() -> None:
    found = [
        place(path, node)
        for path in sources("harmony_agent", "harmony_updater", "harmony_fleet", "scores")
        for node in placeholders(parsed(path))
    ]
    assert not found
