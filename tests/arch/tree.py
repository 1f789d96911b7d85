"""The project's source as syntax trees, for rules that hold for every file of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("scores", "harmony_nats", "harmony_agent", "harmony_updater", "harmony_fleet")


def sources(*folders: str) -> Iterator[Path]:
    """Every Python file below the folders."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if "__pycache__" not in path.parts:
                yield path


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


def place(path: Path, node: ast.AST) -> str:
    """``harmony_agent/cli.py:12``."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def name_of(call: ast.Call) -> str:
    """The dotted name that is called: ``os.system``; "" where it is no plain name."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])
