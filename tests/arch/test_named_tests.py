"""Each test that a document names is there: a promise whose test was renamed has none."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.tree import ROOT, parsed

TESTS = ROOT / "tests"
NAMED = re.compile(r"`((?:[a-z0-9_]+/)*[a-z0-9_]*(?:\.py|/)?)(?:::([a-z0-9_]+))?`")
PLACES = tuple(f"{path.name}/" for path in TESTS.iterdir() if path.is_dir())
DOCUMENTS = ("docs/threat-model.md", "tests/README.md")


def named(text: str) -> Iterator[tuple[str, str]]:
    """Files and tests that a table names; `::test` alone is in the file before it."""
    for line in text.splitlines():
        file = ""
        for found in NAMED.finditer(line) if line.startswith("|") else ():
            if found[1].startswith(PLACES):
                file = found[1]
                yield file, found[2] or ""
            elif not found[1] and found[2]:
                yield file, found[2]


def functions(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_what_is_read_of_a_table() -> None:
    row = "| x | `unit/a.py::test_b`, `::test_c`, `contract/test_d.py` | `unit/x/` `code` |"
    assert list(named(row)) == [
        ("unit/a.py", "test_b"),
        ("unit/a.py", "test_c"),
        ("contract/test_d.py", ""),
        ("unit/x/", ""),
    ]
    assert list(named("`unit/a.py::test_b` in a sentence")) == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_test_that_a_document_names_is_there(document: str) -> None:
    found = list(named((ROOT / document).read_text("utf-8")))
    assert len(found) > 40
    missing = [
        f"{file}::{test}" if test else file
        for file, test in found
        if not (TESTS / file).exists() or (test and test not in functions(TESTS / file))
    ]
    assert missing == []
