"""`harmony explain`: every code, kind and field is known, and reads well at 80 columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_fleet.cli import complete, main
from harmony_fleet.commands.explain import WIDTH, told
from harmony_fleet.manifests import reference
from harmony_fleet.manifests.reference import ModelWords
from scores.manifest import SCORE_TYPES
from tests.arch.test_reasons import documented
from tests.arch.test_reasons import given as given_codes

NAMES = reference.names()


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["explain", *words]) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARMONY_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


def test_every_code_that_can_be_shown_is_explained() -> None:
    codes = reference.codes()
    assert sorted(codes) == sorted(documented())
    assert set(given_codes()) <= set(codes)
    assert {"CrashLoop", "NatsUnreachable", "OtherMutation", "projection-differs"} <= set(codes)


def test_every_kind_and_field_is_explained() -> None:
    assert set(SCORE_TYPES) <= set(reference.models())
    for name, model in SCORE_TYPES.items():
        found = reference.find(name)
        assert isinstance(found, ModelWords)
        assert [field.name for field in found.fields] == list(model.model_fields)
        assert {f"{name}.{field}" for field in model.model_fields} <= set(NAMES)
    assert {"Manifest.scores", "Mount.read_only", "Probe.http"} <= set(NAMES)
    assert "Manifest.signatures" not in NAMES


def test_each_reads_well() -> None:
    for name in NAMES:
        found = reference.find(name)
        assert found is not None, name
        lines = told(found)
        assert lines[0] == name
        assert len(" ".join(lines).split()) > 5, name
        assert [line for line in lines if len(line) > WIDTH and " " in line.strip()] == []
        assert not {"](", "`"} & set("".join(lines)), name


@pytest.mark.parametrize("name", ["CrashLoop", "Container", "Container.mounts"])
def test_programs_get_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    value: Any = json.loads(said(capsys, name, "-o", "json"))
    first = value[0] if isinstance(value, list) else value
    assert first["meaning"].split()[0] in said(capsys, name)


def test_a_code_of_several_pages_has_each_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "OwnershipConflict")
    assert all(f"  {page}: " in text for page in ("Container", "File", "Session", "SystemdUnit"))
    assert text.count("What to do: ") == len(reference.codes()["OwnershipConflict"])


def test_a_field_is_found_by_its_place_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "Container.mounts.read_only") == said(capsys, "Mount.read_only")
    assert "Its fields: harmony explain Mount" in said(capsys, "container.MOUNTS")
    assert "Default: False" in said(capsys, "Mount.read_only")
    assert "Required." in said(capsys, "Container.image")


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("CrashLop", "CrashLoop"),
        ("Contaner", "Container"),
        ("Container.mouts", "Container.mounts"),
        ("read_only", "Container.read_only"),
        ("Container.mounts.targt", "Mount.target"),
    ],
)
def test_a_typo_is_answered_with_what_was_meant(
    wrong: str, right: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, wrong, code=2)
    assert f"cannot explain '{wrong}'" in text
    assert "did you mean" in text
    assert right in text


def test_what_is_like_nothing_leads_to_the_kinds(capsys: pytest.CaptureFixture[str]) -> None:
    assert "harmony schema" in said(capsys, "zzzzzzzzzzzz", code=2)


@given(st.text(max_size=40))
def test_any_name_has_an_answer(name: str) -> None:
    reference.find(name)
    assert len(reference.near(name)) <= 3


def test_names_are_completed() -> None:
    assert complete.explained("Crash") == ["CrashLoop"]
    assert "Container" in complete.explained("cont")
    assert "Container.mounts" not in complete.explained("cont")
    assert "Container.mounts" in complete.explained("Container.m")
