"""The command line, the runner of apt and its log."""

import io
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harmony_updater.__main__ import copy, run_apt
from harmony_updater.host import COMMANDS
from harmony_updater.upgrade import Settings
from tests.unit.updater.world import ATTEMPT, World, request


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A device on which the attempt is applying, and nothing has run apt."""
    made = World(tmp_path).make()
    made.set(no_units="")
    updater = made.updater()
    updater.request(request())
    updater.step()
    assert made.record()["phase"] == "applying"
    return made


def test_the_runner_runs_apt_once_and_notes_how_it_ended(world: World) -> None:
    world.set(output="Setting up demo (2.0) ...\n", upgrade_rc="100")
    updater = world.updater()
    assert run_apt(updater, ATTEMPT) == 100
    folder = world.state / "system-upgrades"
    assert (folder / f"{ATTEMPT}.exit").read_text() == "100"
    assert (folder / f"{ATTEMPT}.log").read_text() == "Setting up demo (2.0) ...\n"
    assert run_apt(updater, ATTEMPT) == 5
    assert world.calls("UPGRADE") == 1


@pytest.mark.parametrize("begun", ["begun", "", "0"])
def test_the_runner_does_not_begin_again_what_was_begun(world: World, begun: str) -> None:
    (world.state / "system-upgrades" / f"{ATTEMPT}.exit").write_text(begun)
    assert run_apt(world.updater(), ATTEMPT) == 5
    assert world.calls("UPGRADE") == 0


def test_the_runner_begins_nothing_out_of_turn(world: World) -> None:
    assert run_apt(world.updater(), "unknown") == 5
    world.boot("boot-2")
    assert run_apt(world.updater(), ATTEMPT) == 5
    world.updater().step()
    assert world.record()["phase"] == "repair-required"
    world.boot("boot-1")
    assert run_apt(world.updater(), ATTEMPT) == 5
    assert world.calls("UPGRADE") == 0


def test_what_a_signal_ended_has_not_ended_well(world: World) -> None:
    program = world.root / "usr/bin/apt-get"
    program.unlink()
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o755)
    assert run_apt(world.updater(), ATTEMPT) == 9
    assert (world.state / "system-upgrades" / f"{ATTEMPT}.exit").read_text() == "9"


def test_a_process_that_apt_left_behind_does_not_hold_up_the_end(world: World) -> None:
    program = world.root / "usr/bin/apt-get"
    program.unlink()
    program.write_text(
        "#!/bin/sh\nsleep 20 &\necho $! >" + str(world.fake / "left") + "\necho done\n"
    )
    program.chmod(0o755)
    since = time.monotonic()
    assert run_apt(world.updater(), ATTEMPT) == 0
    assert time.monotonic() - since < 15
    subprocess.run(["/bin/kill", (world.fake / "left").read_text().strip()], check=True)


@pytest.mark.parametrize(
    ("line", "times"),
    [(b"x" * 99 + b"\n", 5_000), (b"y" * 100_000, 20), (b"E: http://me:secret@x/ \xff\n", 9_000)],
)
def test_the_log_keeps_the_end_and_is_bounded(tmp_path: Path, line: bytes, times: int) -> None:
    path, limit = tmp_path / "log", 200_000
    copy(io.BytesIO(b"first\n" + line * times + b"last\n"), str(path), limit)
    kept = [one.read_bytes() for one in (tmp_path / "log.1", path) if one.exists()]
    assert sum(map(len, kept)) <= limit
    assert b"".join(kept).endswith(b"last\n")
    assert b"secret" not in b"".join(kept)


def test_a_log_that_cannot_be_written_stops_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = io.BytesIO(b"one\ntwo\n")
    copy(output, str(tmp_path / "missing" / "log"), 1000)
    assert output.closed  # read to its end
    capsys.readouterr()


def test_bounds_are_all_that_can_be_configured() -> None:
    assert set(Settings.model_fields) == {
        "device_id", "attempts_per_hour", "lock_wait_seconds", "reboot_tries", "reboot_wait_seconds", "log_bytes",
    }  # fmt: skip
    for wrong in (
        {"command": "x"},
        {"lock_wait_seconds": "1"},
        {"lock_wait_seconds": True},
        {"reboot_tries": 0},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Settings.model_validate({"device_id": "pi-01", **wrong})
    with pytest.raises(ValueError, match="device_id"):
        Settings.model_validate({})


def command(*argv: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "harmony_updater", *argv],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_command_line() -> None:
    code, said = command("version")
    assert (code, said.count(".")) == (0, 2)
    for wrong in ([], ["shell"], ["serve", "--paths=x"], ["version", "x", "y"]):
        assert command(*wrong)[0] == 2
    if not Path("/etc/harmony/updater.toml").exists():
        for name in ("serve", "status", "clear-repair"):
            code, said = command(name)
            assert (code, "/etc/harmony/updater.toml" in said) == (2, True)


def test_the_runner_is_started_by_the_updater_s_own_python() -> None:
    assert shlex.split(COMMANDS["spawn"])[-5:] == [
        sys.executable,
        "-I",
        "-m",
        "harmony_updater",
        "run-apt",
    ]
