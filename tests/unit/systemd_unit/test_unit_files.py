"""The unit directory on a real file system: nothing through links, nothing half written, former
files kept.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from harmony_agent.adapters.systemd import disk
from harmony_agent.adapters.systemd.unit_files import OnDisk, UnitFiles
from harmony_agent.core.errors import Transient
from harmony_agent.topology.units import MASK, OTHER

NAME = "web.service"


def nothing() -> None:
    return


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def files(home: Path) -> UnitFiles:
    return UnitFiles(str(home / "config/units"), str(home / "keep/units"))


def seen(files: UnitFiles, name: str = NAME) -> OnDisk:
    return files.scan([name])[name]


def test_nothing_is_there_at_first(files: UnitFiles) -> None:
    assert seen(files) == OnDisk()


def test_writes_and_makes_directories(files: UnitFiles, home: Path) -> None:
    files.write(NAME, NAME, b"one", "", nothing)
    files.write(NAME, f"{NAME}.d/a.conf", b"two", "", nothing)
    assert seen(files) == OnDisk({NAME: digest("one"), f"{NAME}.d/a.conf": digest("two")})
    units = home / "config/units"
    assert stat.S_IMODE((units / NAME).stat().st_mode) == 0o644
    assert sorted(path.name for path in units.iterdir()) == [NAME, f"{NAME}.d"]
    files.write(NAME, NAME, b"three", "", nothing)
    assert (units / NAME).read_text() == "three"


def test_removes_with_the_empty_directory_and_no_other(files: UnitFiles, home: Path) -> None:
    for entry in ("a.conf", "b.conf"):
        files.write(NAME, f"{NAME}.d/{entry}", b"x", "", nothing)
    folder = home / f"config/units/{NAME}.d"
    files.remove(NAME, f"{NAME}.d/a.conf", "", nothing)
    assert folder.is_dir()
    files.remove(NAME, f"{NAME}.d/b.conf", "", nothing)
    assert not folder.exists()
    files.remove(NAME, f"{NAME}.d/b.conf", "", nothing)
    files.remove(NAME, NAME, "", nothing)


def test_keeps_and_restores(files: UnitFiles, home: Path) -> None:
    unit = home / "config/units" / NAME
    files.write(NAME, NAME, b"former", "", nothing)
    unit.chmod(0o640)
    files.write(NAME, NAME, b"ours", digest("former"), nothing)
    assert stat.S_IMODE(unit.stat().st_mode) == 0o644
    assert seen(files) == OnDisk({NAME: digest("ours")}, backups=frozenset({digest("former")}))
    kept = home / "keep/units" / NAME
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert [stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()] == [0o640]
    files.restore(NAME, NAME, digest("former"), nothing)
    assert seen(files).files == {NAME: digest("former")}
    assert stat.S_IMODE(unit.stat().st_mode) == 0o640
    files.drop_backups(NAME)
    files.drop_backups(NAME)
    assert not kept.exists()
    files.restore(NAME, NAME, MASK, nothing)
    assert seen(files).files == {NAME: MASK}


def test_what_changed_meanwhile_is_not_overwritten(files: UnitFiles, home: Path) -> None:
    files.write(NAME, NAME, b"edited", "", nothing)
    with pytest.raises(Transient) as caught:
        files.write(NAME, NAME, b"ours", digest("former"), nothing)
    assert caught.value.reason == "ChangedMeanwhile"
    assert (home / "config/units" / NAME).read_text() == "edited"


def test_goes_through_no_link(files: UnitFiles, home: Path) -> None:
    outside = home / "outside"
    outside.mkdir()
    (outside / "target").write_text("theirs")
    units = home / "config/units"
    units.mkdir(parents=True)
    (units / NAME).symlink_to(outside / "target")
    (units / f"{NAME}.d").symlink_to(outside)
    assert seen(files).files == {NAME: f"link:{outside}/target", f"{NAME}.d": OTHER}
    files.write(NAME, NAME, b"ours", "", nothing)
    with pytest.raises(Transient):
        files.write(NAME, f"{NAME}.d/a.conf", b"ours", "", nothing)
    assert (outside / "target").read_text() == "theirs"
    assert list(outside.iterdir()) == [outside / "target"]
    assert (units / NAME).read_text() == "ours"


def test_a_hard_link_is_not_written_through(files: UnitFiles, home: Path) -> None:
    units = home / "config/units"
    units.mkdir(parents=True)
    (home / "other").write_text("theirs")
    os.link(home / "other", units / NAME)
    files.write(NAME, NAME, b"ours", "", nothing)
    assert (home / "other").read_text() == "theirs"


@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: Path(path).mkdir()], ids=["fifo", "directory"]
)
def test_what_is_no_file_is_seen_and_not_read(
    files: UnitFiles, home: Path, make: Callable[[str], None]
) -> None:
    (home / f"config/units/{NAME}.d").mkdir(parents=True)
    make(str(home / "config/units" / NAME))
    make(str(home / f"config/units/{NAME}.d/a.conf"))
    assert seen(files).files == {NAME: OTHER, f"{NAME}.d/a.conf": OTHER}


def test_a_file_in_place_of_the_drop_in_directory(files: UnitFiles, home: Path) -> None:
    (home / "config/units").mkdir(parents=True)
    (home / f"config/units/{NAME}.d").write_text("")
    (home / f"config/units/{NAME}").symlink_to("line\nbreak")
    assert seen(files).files == {NAME: OTHER, f"{NAME}.d": OTHER}


def test_links_that_pull_it_in(files: UnitFiles, home: Path) -> None:
    wants = home / "config/units/default.target.wants"
    wants.mkdir(parents=True)
    (wants / NAME).symlink_to(f"../{NAME}")
    (wants / "other.service").symlink_to("../other.service")
    (home / "config/units/a.target.requires").mkdir()
    (home / "config/units/a.target.requires" / NAME).write_text("no link")
    assert seen(files).linked
    files.unlink_wants(NAME, lambda: None, runtime=False)
    assert sorted(os.listdir(wants)) == ["other.service"]
    assert (home / "config/units/a.target.requires" / NAME).exists()
    files.unlink_wants("other.service", lambda: None, runtime=False)
    assert not wants.exists()


def test_what_a_killed_agent_left_is_swept(files: UnitFiles, home: Path) -> None:
    folder = home / f"config/units/{NAME}.d"
    folder.mkdir(parents=True)
    left = [folder / ".harmony-0011.new", home / "config/units/.harmony-0011.new"]
    for path in left:
        path.write_text("half")
    (folder / ".harmony-not").write_text("")
    seen(files)
    assert [path.exists() for path in left] == [False, False]
    assert (folder / ".harmony-not").exists()


def test_unchanged_files_are_not_read_again(
    files: UnitFiles, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.service", "b.service"):
        files.write(name, name, b"x", "", nothing)
    monkeypatch.setattr("harmony_agent.adapters.posix.stat_cache.RACY_SECONDS", -1)
    first = files.scan(["a.service", "b.service"])
    read: list[str] = []

    def counting(entry: str, directory: int) -> bytes:
        read.append(entry)
        return disk.read_file(entry, directory)

    monkeypatch.setattr("harmony_agent.adapters.systemd.unit_files.read_file", counting)
    assert files.scan(["a.service", "b.service"]) == first
    assert read == []
    path = home / "config/units/a.service"
    path.write_text("y")
    assert files.scan(["a.service", "b.service"])["a.service"].files == {"a.service": digest("y")}
    assert read == ["a.service"]


def test_a_young_file_is_read_again(files: UnitFiles, home: Path) -> None:
    files.write(NAME, NAME, b"x", "", nothing)
    seen(files)
    path = home / "config/units" / NAME
    before = path.stat()
    path.write_text("y")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert seen(files).files == {NAME: digest("y")}


@pytest.mark.parametrize(
    ("code", "reason", "phase"),
    [
        (errno.ENOSPC, "NoSpace", "Degraded"),
        (errno.EDQUOT, "NoSpace", "Degraded"),
        (errno.EROFS, "ReadOnly", "Degraded"),
        (errno.EACCES, "AccessDenied", "Blocked"),
        (errno.EIO, "UnitFileError", "Degraded"),
    ],
)
def test_a_write_that_fails_leaves_the_former_and_nothing_else(
    files: UnitFiles,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    reason: str,
    phase: str,
) -> None:
    files.write(NAME, NAME, b"former", "", nothing)

    def fails(_fd: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(Transient) as caught:
        files.write(NAME, NAME, b"secret", "", nothing)
    assert (caught.value.reason, caught.value.phase) == (reason, phase)
    assert "secret" not in str(caught.value)
    assert os.listdir(home / "config/units") == [NAME]
    assert (home / "config/units" / NAME).read_text() == "former"


def test_what_took_too_long_changes_nothing(files: UnitFiles, home: Path) -> None:
    class TooLong(Exception):
        pass

    def check() -> None:
        raise TooLong

    files.write(NAME, NAME, b"former", "", nothing)
    for change in (
        lambda: files.write(NAME, NAME, b"new", "", check),
        lambda: files.remove(NAME, NAME, "", check),
        lambda: files.restore(NAME, NAME, MASK, check),
    ):
        with pytest.raises(TooLong):
            change()
    assert os.listdir(home / "config/units") == [NAME]
    assert (home / "config/units" / NAME).read_text() == "former"
