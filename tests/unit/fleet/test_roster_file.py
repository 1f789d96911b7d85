"""The roster on disk: the fence, the lock, what a kill leaves, which roster may follow which."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.errors import Conflict, HarmonyError, InvalidInput
from harmony_fleet.roster.edit import add, change
from harmony_fleet.roster.file import RosterFile
from harmony_fleet.roster.sources import load_scores
from harmony_fleet.storage import durable

FILES = ["roster.seal", "roster.yaml"]
PI = add("devices", [{"name": "pi-01", "class": "web"}])


@pytest.fixture
def file(tmp_path: Path) -> RosterFile:
    made = RosterFile(tmp_path)
    made.create(str(uuid.uuid4()))
    return made


def forks(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.fleet.forks", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=200,
    )
    return json.loads(done.stdout)


def refused(code: str, work: Any) -> HarmonyError:
    with pytest.raises(HarmonyError) as caught:
        work()
    assert caught.value.code == code
    assert caught.value.hint
    return caught.value


def test_init_makes_generation_1_once(file: RosterFile) -> None:
    roster = file.read()
    assert (roster.version, roster.generation, roster.devices) == (2, 1, [])
    again = lambda: file.create(roster.lineage)  # noqa: E731
    assert isinstance(refused("RosterExists", again), Conflict)
    assert sorted(os.listdir(file.folder)) == FILES
    file.path.unlink()
    refused("RosterMissing", again)
    refused("NoRoster", file.read)


def test_without_init_there_is_no_roster(tmp_path: Path) -> None:
    for work in (RosterFile(tmp_path).read, lambda: RosterFile(tmp_path).mutate(1, PI)):
        assert isinstance(refused("NoRoster", work), InvalidInput)


def test_a_change_adds_one_and_no_change_none(file: RosterFile) -> None:
    after, changed = file.mutate(1, PI)
    assert (after.generation, changed, file.read().generation) == (2, True, 2)
    before = file.path.read_bytes(), file.path.stat().st_ino
    after, changed = file.mutate(2, change("devices", ["pi-01"], {("class",): "web"}))
    assert (after.generation, changed) == (2, False)
    assert (file.path.read_bytes(), file.path.stat().st_ino) == before


@pytest.mark.parametrize("generation", [1, 3, 99])
def test_another_generation_changes_nothing(file: RosterFile, generation: int) -> None:
    file.mutate(1, PI)
    before = file.path.read_bytes()
    edit = add("devices", [{"name": "pi-02", "class": "web"}])
    assert isinstance(refused("StaleGeneration", lambda: file.mutate(generation, edit)), Conflict)
    assert file.path.read_bytes() == before


def test_what_would_be_refused_is_not_written(file: RosterFile) -> None:
    before = file.path.read_bytes()

    def refuse(_roster: object) -> None:
        raise InvalidInput("No", "no", "no")

    refused("No", lambda: file.mutate(1, PI, refuse))
    refused("InvalidName", lambda: file.mutate(1, add("devices", [{"name": "PI", "class": "web"}])))
    refused("NotFound", lambda: file.mutate(1, change("devices", ["pi-09"], {("class",): "x"})))
    assert file.path.read_bytes() == before
    assert sorted(os.listdir(file.folder)) == FILES


def test_of_a_hundred_at_once_one_wins(file: RosterFile, tmp_path: Path) -> None:
    assert forks("race", str(tmp_path), "100") == {"0": 1, "3": 99}
    roster = file.read()
    assert (roster.generation, len(roster.devices)) == (2, 1)
    assert sorted(os.listdir(file.folder)) == FILES


def test_a_kill_at_any_line_leaves_the_old_or_the_new(file: RosterFile, tmp_path: Path) -> None:
    told = forks("kill", str(tmp_path))
    assert len(told) > 60
    assert {item["generation"] for item in told} == {1, 2}
    for at, item in enumerate(told, 1):
        assert item["devices"] == item["generation"] - 1, at
        assert item["left"] == FILES, at


@pytest.mark.parametrize(("before", "generation"), [("os.link(", 1), ("os.replace(", 1), ("", 2)])
def test_a_kill_of_the_one_that_renames_leaves_nothing(
    file: RosterFile, monkeypatch: pytest.MonkeyPatch, before: str, generation: int
) -> None:
    end = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    words = durable._COMMIT.replace("; os.replace", "\nos.replace")
    at = words.index(before) if before else len(words)
    monkeypatch.setattr(
        durable, "_COMMIT", f"{words[:at]}\n{end}{words[at:]}" if before else f"{words}\n{end}"
    )
    with pytest.raises(InvalidInput):
        file.mutate(1, PI)
    monkeypatch.undo()
    assert sorted(os.listdir(file.folder)) == FILES
    assert file.read().generation == generation


def test_where_files_need_names_a_kill_leaves_one_for_the_next_to_sweep(
    file: RosterFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    file.mutate(1, PI)
    assert sorted(os.listdir(file.folder)) == FILES
    left = Path(durable.beside(str(file.path)))
    left.write_text("half")
    assert file.read().generation == 2
    assert not left.exists()
    monkeypatch.setattr(os, "replace", lambda *_words: (_ for _ in ()).throw(OSError(5, "gone")))
    refused(
        "RosterUnwritable",
        lambda: file.mutate(2, add("devices", [{"name": "pi-02", "class": "web"}])),
    )
    assert sorted(os.listdir(file.folder)) == FILES


def test_where_nobody_can_lock_or_open_it_is_not_waited_for(
    file: RosterFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(error: int, *_arguments: Any) -> Any:
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", partial(fails, errno.ENOLCK))
        assert "No locks available" in str(refused("NoLocks", lambda: file.mutate(1, PI)))
    with monkeypatch.context() as patch:
        patch.setattr("harmony_fleet.storage.lock.os.open", partial(fails, errno.EACCES))
        assert "Permission denied" in str(refused("RosterUnreadable", lambda: file.mutate(1, PI)))


def test_the_lock_goes_with_its_holder(
    file: RosterFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.unit.fleet.forks", "holder", str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        monkeypatch.setattr("harmony_fleet.roster.file.LOCK_SECONDS", 0.1)
        assert isinstance(refused("RosterBusy", lambda: file.mutate(1, PI)), Conflict)
        assert file.read().generation == 1
        os.kill(holder.pid, signal.SIGKILL)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()  # type: ignore[union-attr]
    assert file.mutate(1, PI)[0].generation == 2
    assert sorted(os.listdir(file.folder)) == FILES


def rewritten(file: RosterFile, old: str, new: str) -> None:
    text = file.path.read_text()
    assert old in text
    file.path.write_text(text.replace(old, new))


def test_which_roster_may_follow(file: RosterFile, tmp_path: Path) -> None:
    file.mutate(1, PI)
    older = file.path.read_bytes()
    file.mutate(2, change("devices", ["pi-01"], {("class",): "edge"}))
    newest = file.path.read_bytes()
    other = RosterFile(tmp_path / "other")
    other.create(str(uuid.uuid4()))
    for data, code in ((other.path.read_bytes(), "LineageChanged"), (older, "StaleGeneration")):
        file.path.write_bytes(data)
        for work in (file.read, lambda: file.mutate(1, PI), lambda: file.mutate(2, PI)):
            assert isinstance(refused(code, work), Conflict)
        assert file.path.read_bytes() == data
    file.path.write_bytes(newest)
    rewritten(file, "class: edge", "class: web")
    assert isinstance(refused("GenerationReused", file.read), Conflict)
    rewritten(file, "generation: 3", "generation: 4")
    assert file.read().generation == 4
    with file.locked():
        pass
    rewritten(file, "generation: 4", "generation: 3")
    refused("StaleGeneration", file.read)


def test_a_comment_by_hand_is_no_change(file: RosterFile) -> None:
    file.mutate(1, PI)
    rewritten(file, "name: pi-01", "name: pi-01  # under the desk")
    assert file.read().generation == 2
    after, _ = file.mutate(2, change("devices", ["pi-01"], {("labels", "site"): "home"}))
    assert after.generation == 3
    assert "# under the desk" in file.path.read_text()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":2}', b"\xff"])
def test_a_broken_seal_is_no_word_on_the_past(file: RosterFile, data: bytes) -> None:
    file.seal_path.write_bytes(data)
    refused("SealUnreadable", file.read)
    file.seal_path.unlink()
    assert file.read().generation == 1


def by_hand(file: RosterFile, **fields: int) -> None:
    text = file.path.read_text()
    for name, value in fields.items():
        text = re.sub(f"^{name}: .*$", f"{name}: {value}", text, flags=re.MULTILINE)
    file.path.write_text(text)


@pytest.mark.parametrize("generation", [1, 2, 3, 9])
def test_a_roster_that_shares_its_lineage_never_has_all_of_it_by_an_edit(
    file: RosterFile, generation: int
) -> None:
    file.mutate(1, PI)
    before = file.seal_path.read_bytes()
    by_hand(file, version=1, generation=generation)
    error = refused("RosterVersionLowered", file.read)
    assert (error.exit_code, error.hint.startswith("set version: 2 again")) == (3, True)
    refused("RosterVersionLowered", lambda: file.mutate(None, add("devices", [])))
    refused("RosterVersionLowered", lambda: file.locked().__enter__())
    assert file.seal_path.read_bytes() == before
    by_hand(file, version=2, generation=3)  # as the hint says
    assert file.read().shares_lineage


def test_a_roster_of_version_1_may_become_one_of_2(file: RosterFile) -> None:
    file.seal_path.unlink()
    by_hand(file, version=1)
    assert not file.mutate(1, PI)[0].shares_lineage
    by_hand(file, version=2, generation=3)
    assert file.read().shares_lineage


def test_a_seal_of_before_learns_the_version_when_the_roster_is_locked_next(
    file: RosterFile,
) -> None:
    seal = json.loads(file.seal_path.read_bytes())
    del seal["form"]
    file.seal_path.write_text(json.dumps(seal))
    with file.locked():
        pass
    by_hand(file, version=1, generation=2)
    refused("RosterVersionLowered", file.read)


def test_what_a_seal_of_old_says_of_the_roster_counts_for_nothing(file: RosterFile) -> None:
    """Version 1 held the roster as JSON, and outranked the file."""
    roster, _ = file.mutate(1, PI)
    seal = json.loads(file.seal_path.read_bytes())
    del seal["history"]
    forged = {**roster.wire(), "devices": []}
    file.seal_path.write_text(json.dumps(seal | {"version": 1, "roster": forged}))
    assert [device.name for device in file.read().devices] == ["pi-01"]
    assert file.history() == ((2, roster.content_digest()),)
    file.mutate(2, change("devices", ["pi-01"], {("class",): "edge"}))
    assert b"pi-01" not in file.seal_path.read_bytes()
    assert [generation for generation, _ in file.history()] == [2, 3]


@pytest.mark.parametrize("what", ["fifo", "folder", "device", "socket"])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.timeout(20)
def test_a_roster_that_is_no_file_is_refused_and_not_waited_for(
    file: RosterFile, what: str, name: str
) -> None:
    path = file.folder / name
    path.unlink()
    if what == "fifo":
        os.mkfifo(path)
    elif what == "folder":
        path.mkdir()
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    for work in (file.read, lambda: file.mutate(1, PI), file.history):
        assert isinstance(refused("RosterUnreadable", work), InvalidInput)


def test_the_roster_keeps_its_mode_and_a_link_stays_one(file: RosterFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "repository"
    elsewhere.mkdir()
    file.path.rename(elsewhere / "roster.yaml")
    file.path.symlink_to(elsewhere / "roster.yaml")
    (elsewhere / "roster.yaml").chmod(0o640)
    file.mutate(1, PI)
    assert file.path.is_symlink()
    assert (elsewhere / "roster.yaml").stat().st_mode & 0o777 == 0o640
    assert os.listdir(elsewhere) == ["roster.yaml"]


def _opened(path: Path, mode: int) -> Path:
    path.chmod(mode)
    return path


def _file(home: RosterFile, _tmp: Path) -> Path:
    return _opened(home.path, 0o666)


def _seal(home: RosterFile, _tmp: Path) -> Path:
    return _opened(home.seal_path, 0o602)


def _folder(home: RosterFile, _tmp: Path) -> Path:
    return _opened(home.folder, 0o777)


def _folder_above(home: RosterFile, _tmp: Path) -> Path:
    return _opened(home.folder.parent, 0o777)


def _link(home: RosterFile, tmp: Path) -> Path:
    shared = tmp / "shared"
    shared.mkdir()
    home.path.rename(shared / "roster.yaml")
    home.path.symlink_to(shared / "roster.yaml")
    return _opened(shared / "roster.yaml", 0o666)


def _folder_of_a_link(home: RosterFile, tmp: Path) -> Path:
    """The link in the middle stands where anybody may change it; both its ends are safe."""
    shared, safe = tmp / "shared", tmp / "safe"
    shared.mkdir()
    safe.mkdir()
    home.path.rename(safe / "roster.yaml")
    (shared / "roster.yaml").symlink_to(safe / "roster.yaml")
    home.path.symlink_to(shared / "roster.yaml")
    return _opened(shared, 0o777)


@pytest.mark.parametrize(
    "expose",
    [_file, _seal, _folder, _folder_above, _link, _folder_of_a_link],
    ids=lambda f: f.__name__,
)
def test_a_roster_that_anybody_may_write_is_refused_with_the_chmod_to_type(
    file: RosterFile, tmp_path: Path, expose: Any
) -> None:
    opened = expose(file, tmp_path)
    for work in (
        file.read,
        lambda: file.locked().__enter__(),
        lambda: file.mutate(1, add("devices", [])),
    ):
        error = refused("WritableByAnybody", work)
        assert error.exit_code == 3
        assert error.hint.endswith(f"chmod o-w {opened}")
    subprocess.run(["sh", "-c", error.hint.rpartition("then: ")[2]], check=True)
    assert file.read().generation == 1


def test_a_sticky_folder_keeps_the_roster_of_another(file: RosterFile) -> None:
    file.folder.chmod(0o1777)
    assert file.read().generation == 1


@pytest.mark.parametrize("name", ["web.py", "web.yaml"])
def test_a_file_of_the_roster_that_anybody_may_write_is_refused_and_not_run(
    file: RosterFile, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    ran = tmp_path / "ran"
    program = f"import os\nos.mkdir({str(ran)!r})\nscores = []\n"
    path.write_text(program if name.endswith("py") else "[]\n")
    path.chmod(0o666)
    assert refused("WritableByAnybody", lambda: load_scores(path)).hint.endswith(
        f"chmod o-w {path}"
    )
    assert not ran.exists()
    path.chmod(0o644)
    assert load_scores(path) == []


def test_without_a_generation_the_current_one_is_changed(file: RosterFile) -> None:
    assert file.mutate(None, PI)[0].generation == 2
    assert file.mutate(None, change("devices", ["pi-01"], {("enabled",): False}))[0].generation == 3
    refused(
        "StaleGeneration", lambda: file.mutate(2, change("devices", ["pi-01"], {("class",): "x"}))
    )


def test_of_many_at_once_without_a_generation_no_change_is_lost(file: RosterFile) -> None:
    names = [f"pi-{at:02}" for at in range(12)]
    script = (
        "import sys; from pathlib import Path; from harmony_fleet.roster.edit import add;"
        "from harmony_fleet.roster.file import RosterFile;"
        "f = RosterFile(Path(sys.argv[1]));"
        "[f.mutate(None, add('devices', [{'name': n, 'class': 'web'}])) for n in sys.argv[2:]]"
    )
    home = str(file.folder.parent)
    running = [
        subprocess.Popen([sys.executable, "-c", script, home, *names[at::3]]) for at in range(3)
    ]
    assert [one.wait(100) for one in running] == [0, 0, 0]
    roster = file.read()
    assert (sorted(device.name for device in roster.devices), roster.generation) == (names, 13)


@pytest.mark.parametrize("generation", [None, 1])
def test_what_an_editor_wrote_meanwhile_is_not_written_over(
    file: RosterFile, generation: int | None
) -> None:
    by_hand = file.path.read_bytes() + b"# by hand\n"

    def edited(_roster: Any) -> None:
        file.path.write_bytes(by_hand)

    assert refused("StaleGeneration", lambda: file.mutate(generation, PI, edited)).exit_code == 3
    assert file.path.read_bytes() == by_hand
