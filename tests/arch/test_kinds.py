"""The kinds look alike: the same files with the same names, and plans that are functions of what they
are given.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.tree import ROOT, parsed

KINDS = sorted(path for path in (ROOT / "harmony_agent" / "kinds").iterdir() if path.is_dir())
KINDS = [path for path in KINDS if (path / "__init__.py").exists()]
FILES = {"actions", "facts", "plan", "observe", "apply", "reconciler"}
PURE = {"actions", "facts", "observed", "plan", "policy", "removal", "running"}
CONSTANTS = {"_policy", "_boot_id", "_device", "_directory"}
"""Attributes that hold what doesn't change while the agent runs."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda path: path.name)
def test_a_kind_has_the_files_that_every_kind_has(kind: Path) -> None:
    assert FILES - {path.stem for path in kind.glob("*.py")} == set()


@pytest.mark.parametrize("kind", KINDS, ids=lambda path: path.name)
def test_what_decides_does_not_know_the_state(kind: Path) -> None:
    for name in sorted(PURE):
        path = kind / f"{name}.py"
        if path.exists():
            tree = parsed(path)
            names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
            assert "KindView" not in names, path
            asynchronous = [n for n in ast.walk(tree) if isinstance(n, ast.AsyncFunctionDef)]
            assert asynchronous == [], path


@pytest.mark.parametrize("kind", KINDS, ids=lambda path: path.name)
@pytest.mark.parametrize("method", ["admit", "claims", "plan", "detail"])
def test_a_decision_reads_nothing_of_the_reconciler_but_constants(kind: Path, method: str) -> None:
    assert set(_read(kind / "reconciler.py", method)) <= CONSTANTS


def _read(path: Path, method: str) -> Iterator[str]:
    """Attributes of `self` that the method reads, also through its own helpers."""
    methods = {
        node.name: node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)
    }
    waiting, done = [method], set()
    while waiting:
        name = waiting.pop()
        done.add(name)
        for node in ast.walk(methods[name]):
            of_self = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if of_self and node.value.id == "self":  # type: ignore[attr-defined]
                attribute = node.attr  # type: ignore[attr-defined]
                if attribute not in methods:
                    yield attribute
                elif attribute not in done:
                    waiting.append(attribute)
