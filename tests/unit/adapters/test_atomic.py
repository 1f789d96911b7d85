"""The one durable writer: the old object or the new one stands at the path, and nothing beside it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmony_agent.adapters.files.backups import Backups
from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import (
    AtomicWrite,
    in_directory,
    is_temp,
    make_directory,
    temp_name,
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    with in_directory(str(tmp_path)) as fd:
        yield fd


def old_system(_old: str, _new: str, _folder: int, _flags: int) -> bool:
    """A file system without renameat2."""
    return False


def test_a_file_is_replaced_whole(folder: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with AtomicWrite(folder, "a") as new:
        new.write(b"n")
        new.write(b"ew")
        assert (tmp_path / "a").read_text() == "old"
        assert is_temp(new.temp)
        new.replace()
    assert (tmp_path / "a").read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]
    assert new.status is not None
    assert new.status.st_ino == (tmp_path / "a").stat().st_ino


def test_what_is_not_finished_goes(folder: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")

    def too_late() -> None:
        raise TimeoutError

    with AtomicWrite(folder, "a") as new:
        new.write(b"new")
        with pytest.raises(TimeoutError):
            new.replace(too_late)
    assert not new.left_over
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_a_killed_agent_left_is_replaced(folder: int, tmp_path: Path, kind: str) -> None:
    left = tmp_path / temp_name("a")
    outside = tmp_path / "outside"
    outside.write_text("theirs")
    if kind == "file":
        left.write_text("half")
    elif kind == "link":
        left.symlink_to(outside)
    else:
        left.mkdir()
    with AtomicWrite(folder, "a") as new:
        new.write(b"new")
        new.replace()
    assert sorted(os.listdir(tmp_path)) == ["a", "outside"]
    assert outside.read_text() == "theirs"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600


def test_a_name_as_long_as_can_be(folder: int, tmp_path: Path) -> None:
    name = "n" * 255
    with AtomicWrite(folder, name, "symlink", "nowhere") as new:
        new.replace()
    assert (tmp_path / name).is_symlink()
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("rename", [syscalls.renameat2, old_system])
@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_appears_only_where_nothing_stands(
    folder: int, tmp_path: Path, rename: object, kind: str
) -> None:
    with AtomicWrite(folder, "a", kind, "nowhere", rename) as new:  # type: ignore[arg-type]
        new.appear()
        new.settle()
    assert os.listdir(tmp_path) == ["a"]
    (tmp_path / "b").write_text("theirs")
    with AtomicWrite(folder, "b", kind, "nowhere", rename) as new:  # type: ignore[arg-type]
        with pytest.raises((FileExistsError, NotADirectoryError)):
            new.appear()
    assert (tmp_path / "b").read_text() == "theirs"
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize("rename", [syscalls.renameat2, old_system])
def test_a_directory_that_holds_something_stays(
    folder: int, tmp_path: Path, rename: object
) -> None:
    place = tmp_path / "a"
    place.mkdir()
    (place / "theirs").touch()
    with AtomicWrite(folder, "a", rename=rename) as new:  # type: ignore[arg-type]
        with pytest.raises(OSError, match="not empty"):
            new.exchange(place.stat())
    assert (place / "theirs").exists()
    assert os.listdir(tmp_path) == ["a"]
    (place / "theirs").unlink()
    with AtomicWrite(folder, "a", rename=rename) as new:  # type: ignore[arg-type]
        new.exchange(place.stat())
        new.settle()
    assert place.is_file()
    assert os.listdir(tmp_path) == ["a"]


def test_tells_what_it_could_not_remove(folder: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_words: object, **_named: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    new = AtomicWrite(folder, "a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", fails)
        new.close()
    assert new.left_over
    new.close()
    assert not new.left_over


def test_directories_are_made_from_the_top(tmp_path: Path) -> None:
    make_directory(str(tmp_path / "a/b/c"), 0o700)
    make_directory(str(tmp_path / "a/b/c"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")} == {0o700}


def test_an_older_agents_unfinished_copy_is_forgotten_with_its_copy(tmp_path: Path) -> None:
    former = tmp_path / "former"
    former.mkdir()
    for name in ("copy", "copy~", temp_name("copy"), "other"):
        (former / name).touch()
    Backups(str(tmp_path)).forget("copy")
    assert os.listdir(former) == ["other"]
