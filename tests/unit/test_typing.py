"""A type checker sees what it is to see: the examples of docs/client.md, and each kind's status by its
kind. It checks as another project would, for `scores` and `harmony_fleet` are marked as typed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from mypy import api

from tests import guide

KINDS = """
from typing import assert_type
from scores import (
    ContainerDetail, Detail, FileDetail, NetworkDetail, PackageDetail, ResourceStatus, SessionDetail,
    UnitDetail, UpgradeDetail, VolumeDetail,
)

def by_class(told: ResourceStatus) -> None:
    match told.status:
        case ContainerDetail() as found:
            assert_type(found.exit_code, int | None)
        case UnitDetail() as found:
            assert_type(found.active_state, str)
        case FileDetail() | SessionDetail() | UpgradeDetail() | VolumeDetail() | NetworkDetail():
            pass
        case PackageDetail() | None:
            pass

def by_kind(detail: Detail) -> str:
    if detail.kind == "Container":
        assert_type(detail, ContainerDetail)
        return detail.state
    if detail.kind == "SystemdUnit":
        return detail.sub_state
    assert_type(
        detail,
        FileDetail | UpgradeDetail | SessionDetail | VolumeDetail | NetworkDetail | PackageDetail,
    )
    return ""
"""
WRONG = """
from scores import Detail, ResourceStatus

def not_narrowed(detail: Detail) -> int:
    return detail.main_pid

def no_such_phase(told: ResourceStatus) -> bool:
    return told.phase == "Converged"
"""


def checked(folder: Path, *texts: str) -> list[str]:
    """The lines that mypy prints of these programs, strict and on their own."""
    places = []
    for number, text in enumerate(texts):
        path = folder / f"example_{number}.py"
        path.write_text(text)
        places.append(str(path))
    options = ["--strict", "--strict-equality", "--config-file=", "--no-error-summary"]
    cache = Path(__file__).parents[2] / ".mypy_cache" / "examples"
    out, err, _ = api.run([*options, f"--cache-dir={cache}", "--ignore-missing-imports", *places])
    assert err == ""
    return out.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("typed")


def test_the_examples_and_each_kind_are_typed(folder: Path) -> None:
    examples = [block.text for block in guide.blocks("client.md") if block.language == "python"]
    assert len(examples) > 5
    assert checked(folder, KINDS, *examples) == []


def test_a_wrong_use_is_found(folder: Path) -> None:
    found = [line.partition("error: ")[2] for line in checked(folder, WRONG)]
    assert len(found) > 4  # each kind that has no main_pid, and the comparison
    assert any('"FileDetail"' in line and "main_pid" in line for line in found)
    assert any("Non-overlapping equality" in line for line in found)
