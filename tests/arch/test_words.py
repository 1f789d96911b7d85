"""Docstrings and texts for users are sentences that a reader gets at the first reading."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.arch.tree import parsed, place, sources

PACKAGES = ("scores", "harmony_nats", "harmony_agent", "harmony_fleet", "harmony_updater")
OPENS = re.compile(r"(What|Whether|Which|Where|Who|Whose|How|When|Why)\b")
"""A clause that opens with one of these doesn't say what the thing does."""
PREDICATE = re.compile(
    r"\b(is|are|was|were|been) so(?=[.,;:]|$)|(?<!there )\b(is|are|was) none\b", re.MULTILINE
)
ELSEWHERE = re.compile(r"As the protocol says")
MAY_OPEN = 0.01
"""Share of a package's docstrings that may open with such a word."""
FOUND = {"harmony_nats": 10}
"""Docstrings that the search must find at least: the package is one module."""


def faults(text: str) -> list[str]:
    """Names of the rules that a text breaks."""
    rules = (
        ("opener", OPENS.match),
        ("predicate", PREDICATE.search),
        ("elsewhere", ELSEWHERE.search),
    )
    return [name for name, finds in rules if finds(" ".join(text.split()))]


def docstrings(path: Path) -> Iterator[tuple[str, str]]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(parsed(path)):
        text = ast.get_docstring(node) if isinstance(node, kinds) else None
        if text is not None:
            yield place(path, node), text


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("Whether it is ready.", ["opener"]),
        ("Wait until it is so.", ["predicate"]),
        ("The signatures are none.", ["predicate"]),
        ("As the protocol says.", ["elsewhere"]),
        ("Return whether it is ready.", []),
        ("Empty if there is none.", []),
        ("Return a list that is so long that it is cut.", []),
    ],
)
def test_the_rules_see_what_they_are_for(text: str, broken: list[str]) -> None:
    assert faults(text) == broken


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_open_with_a_verb_or_a_noun(package: str) -> None:
    found = [(where, text) for path in sources(package) for where, text in docstrings(path)]
    broken = [where for where, text in found if "opener" in faults(text)]
    assert len(found) > FOUND.get(package, 40)
    assert len(broken) <= MAY_OPEN * len(found), broken


@pytest.mark.parametrize("package", PACKAGES)
def test_no_text_has_so_or_none_as_its_predicate(package: str) -> None:
    """Docstrings, and every other text: an error's sentence, a help."""
    broken = [
        place(path, node)
        for path in sources(package)
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and set(faults(node.value)) - {"opener"}
    ]
    assert broken == []
