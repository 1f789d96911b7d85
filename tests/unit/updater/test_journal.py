"""The journal: what is on disk is whole or named, and what can't be read in full stops
everything.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_updater.journal import Journal, JournalError, Record, read, write_durably

RECORD = {
    "attemptId": "a", "runUid": "r", "deviceId": "pi-01", "expiresAt": "2026-11-29T18:00:00.000Z",
    "phase": "preflight", "startedAt": "2026-11-29T17:00:00.000Z", "updatedAt": "2026-11-29T17:00:00.000Z",
}  # fmt: skip


def written(folder: Path, name: str = "a", **changes: Any) -> Path:
    path = folder / f"{name}.json"
    path.write_text(Record.model_validate(RECORD | {"attemptId": name} | changes).model_dump_json())
    return path


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "new" / "folder"))
    record = Record.model_validate(
        RECORD | {"before": {"demo": "1"}, "result": {"upgraded": ("demo (1 => 2)",)}}
    )
    write_durably(f"{journal.folder}/a.json", record.model_dump_json())
    assert journal.load("a") == record
    assert journal.all() == [record]
    assert journal.load("b") is None
    assert os.stat(journal.folder).st_mode & 0o777 == 0o700


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(min_value=0, max_value=10_000))
def test_a_record_cut_at_any_length_is_refused_and_named(tmp_path: Path, cut: int) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])
    with pytest.raises(JournalError, match=r"a\.json"):
        Journal(str(tmp_path)).all()


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"\0" * len(text),
        lambda text: text.replace(b"preflight", b"pre\xfflight"),
        lambda text: text + b"}",
        lambda text: text.replace(b'"version":1', b'"version":2'),
        lambda text: text.replace(b'"version":1', b'"version":1,"more":1'),
        lambda text: text.replace(b"preflight", b"unknown"),
        lambda text: text.replace(b'"preflight"', b"1"),
        lambda text: text.replace(b'"attemptId":"a"', b'"attemptId":"b"'),
        lambda text: text.replace(b"preflight", b"applying"),  # without the boot id
        lambda text: text.replace(b"preflight", b"complete"),
        lambda _: b"[]",
    ],
)  # fmt: skip
def test_a_damaged_record_is_refused_and_named(tmp_path: Path, damage: Any) -> None:
    path = written(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(JournalError, match=r"a\.json"):
        Journal(str(tmp_path)).load("a")
    with pytest.raises(JournalError, match=r"a\.json"):
        Journal(str(tmp_path)).all()


def test_a_record_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "a.json").mkdir()
    with pytest.raises(OSError, match=r"a\.json"):
        Journal(str(tmp_path)).all()


def test_two_active_attempts_are_refused_and_both_named(tmp_path: Path) -> None:
    written(tmp_path, "a")
    written(tmp_path, "b", phase="failed")
    assert [record.attemptId for record in Journal(str(tmp_path)).all()] == ["a", "b"]
    written(tmp_path, "c", phase="applying", bootIdBefore="1")
    with pytest.raises(JournalError, match=r"a\.json.*c\.json|c\.json.*a\.json"):
        Journal(str(tmp_path)).all()


def test_what_is_no_journal_is_left_alone(tmp_path: Path) -> None:
    for name in (".a.json.new", "a.log", "a.log.1", "a.exit", "a.json.bak"):
        (tmp_path / name).write_text("x")
    assert Journal(str(tmp_path)).all() == []


def test_a_write_replaces_whole_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for text in ("one", "", "three\n"):
        write_durably(str(path), text)
        assert path.read_text() == text
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("fault", ["write", "fsync", "replace"])
def test_a_write_that_fails_leaves_what_was_there(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "x"
    write_durably(str(path), "one")
    with monkeypatch.context() as patched:
        patched.setattr(os, fault, fail)
        with pytest.raises(OSError, match="No space"):
            write_durably(str(path), "two")
    assert path.read_text() == "one"
    write_durably(str(path), "two")
    assert path.read_text() == "two"


def test_what_is_written_is_on_disk_before_it_has_its_name_and_its_name_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, str]] = []

    def noted(name: str, original: Any) -> Any:
        def call(what: Any, *more: Any) -> Any:
            path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else what
            done.append((name, os.path.basename(path)))
            return original(what, *more)

        return call

    for name in ("write", "fsync", "replace"):
        monkeypatch.setattr(os, name, noted(name, getattr(os, name)))
    write_durably(str(tmp_path / "x"), "one")
    assert done == [
        ("write", ".x.new"),
        ("fsync", ".x.new"),
        ("replace", ".x.new"),
        ("fsync", tmp_path.name),
    ]


def test_a_short_write_is_no_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole(file, data[:1]))
    with pytest.raises(OSError, match="cannot write all"):
        write_durably(str(tmp_path / "x"), "two")
    assert not (tmp_path / "x").exists()


def test_no_descriptor_is_left_open_by_writes_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(5, "Input/output error")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fsync", fail)
    for _ in range(20):
        with pytest.raises(OSError, match="Input/output"):
            write_durably(str(tmp_path / "x"), "two")
    assert len(os.listdir("/proc/self/fd")) == before


def test_reading_tells_missing_from_unreadable(tmp_path: Path) -> None:
    assert read(str(tmp_path / "missing")) == ""
    with pytest.raises(IsADirectoryError):
        read(str(tmp_path))


def test_the_record_is_plain_json_of_one_version(tmp_path: Path) -> None:
    assert json.loads(written(tmp_path).read_bytes())["version"] == 1
