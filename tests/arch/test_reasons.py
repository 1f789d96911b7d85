"""Every reason that a device may give stands in docs/reasons, and none stands there that isn't
given.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from scores.manifest import _CODES
from tests.arch.tree import ROOT, name_of, parsed, place, sources

DOCS = ROOT / "docs" / "reasons"
FORM = re.compile(r"[A-Z][A-Za-z0-9]+")
POSITIONS = {
    "Outcome": 1,
    "NotAccepted": 1,
    "Hold": 1,
    "PathError": 0,
    "Wait": 0,
    "Lost": 0,
    "Transient": 0,
    "Terminal": 0,
    "ResourceError": 0,
    "FieldError": 1,
    "NotCanonical": 0,
    "InvalidManifest": 0,
    "PydanticCustomError": 0,
    "InvalidInput": 0,
    "Conflict": 0,
    "Unreachable": 0,
    "Refused": 0,
    "DeviceFailed": 0,
    "HarmonyError": 0,
    "FileChanged": 0,
    "Behind": 0,
    "Overtaken": 0,
    "check_distinct": 3,
    "fault": 1,
    "_pattern": 2,
}
"""Which argument of a call is a code."""
GIVEN = ("scores", "harmony_agent", "harmony_fleet")
BY_SHAPE = {"WrongType", "OutOfRange", "Invalid", "TooLong", "TooShort"}


def documented() -> dict[str, list[str]]:
    """code -> the pages in whose table it stands; a row may have several codes."""
    found: dict[str, list[str]] = {}
    for page in sorted(DOCS.glob("*.md")):
        for line in page.read_text("utf-8").splitlines():
            cells = line.split("|")
            if line.startswith("|") and len(cells) >= 5:
                for code in re.findall(r"`([^`]+)`", cells[1]):
                    found.setdefault(code, []).append(page.name)
    return found


def _constants(tree: ast.Module) -> dict[str, list[str]]:
    """Names at a module's top that hold one text, or a table of texts."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        target: ast.expr | None = node.target if isinstance(node, ast.AnnAssign) else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
        value = getattr(node, "value", None)
        if isinstance(target, ast.Name) and isinstance(value, ast.expr):
            found[target.id] = _texts(value)
    return found


def _texts(node: ast.expr) -> list[str]:
    """The texts that an expression may be: a literal, either side of a condition, a table's
    values.
    """
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    if isinstance(node, ast.Dict):
        return [text for value in node.values for text in _texts(value)]
    return []


def given() -> dict[str, str]:
    """code -> a place that gives it."""
    found: dict[str, str] = {}
    for path in sources(*GIVEN):
        tree = parsed(path)
        constants = _constants(tree)
        for node in ast.walk(tree):
            codes: list[ast.expr] = []
            if isinstance(node, ast.Call):
                position = POSITIONS.get(name_of(node).rpartition(".")[2])
                if position is not None and len(node.args) > position:
                    codes.append(node.args[position])
                if position is not None or name_of(node) == "replace":
                    codes += [
                        word.value for word in node.keywords if word.arg in ("reason", "code")
                    ]
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                codes += [
                    value
                    for key, value in pairs
                    if isinstance(key, ast.Constant) and key.value == "reason"
                ]
            for code in codes:
                texts = constants.get(code.id, []) if isinstance(code, ast.Name) else _texts(code)
                for text in texts:
                    if FORM.fullmatch(text):
                        found.setdefault(text, place(path, node))
    return found


def test_it_finds_what_it_is_for() -> None:
    found = given()
    assert {
        "OwnershipConflict",
        "GenerationReused",
        "PathNotNormal",
        "NotJson",
        "NoSpace",
        "LedgerLost",
    } <= set(found)
    assert {
        "StaleGeneration",
        "PruneGuard",
        "DesiredStateMissing",
        "CrashLoop",
        "Contended",
    } <= set(found)
    assert len(found) > 100


def test_every_reason_is_documented() -> None:
    pages = documented()
    missing = {code: where for code, where in given().items() if code not in pages}
    assert missing == {}
    assert sorted({*_CODES.values(), *BY_SHAPE} - set(pages)) == []


def test_no_reason_is_documented_that_is_not_given() -> None:
    """Somewhere in the source its text must stand; where a code is made of parts, no table could be
    right.
    """
    texts = {
        node.value
        for path in sources("scores", "harmony_agent", "harmony_updater", "harmony_fleet")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {code: pages for code, pages in documented().items() if code not in texts} == {}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_every_row_says_what_it_means_and_what_to_do(page: Path) -> None:
    rows = [line for line in page.read_text("utf-8").splitlines() if line.startswith("|")]
    assert rows[0].split("|")[1:4] == [" code ", " meaning ", " what to do "]
    for row in rows[2:]:
        code, meaning, fix = (cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:4])
        assert re.fullmatch(r"(`[A-Za-z0-9-]+`[ ,]*)+", code), row
        assert meaning, row
        assert fix, row
