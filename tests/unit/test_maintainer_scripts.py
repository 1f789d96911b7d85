"""The packages' scripts: what they remove is theirs, and not through a link; whom the launcher
leaves as root.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harmony_agent.cli import parser

DEB = Path(__file__).parents[2] / "deploy" / "deb"
POSTRM = DEB / "harmony-agent" / "postrm"


def tidy(home: Path) -> None:
    """Run the script's own functions, up to where it removes the user."""
    functions, _, _ = POSTRM.read_text("utf-8").partition("remove_user() {")
    script = home.parent / "tidy"
    script.write_text(f'{functions}\ntidy_home "$1"\n', "utf-8")
    subprocess.run(["/bin/sh", str(script), str(home)], check=True, capture_output=True, timeout=60)


def elsewhere(folder: Path) -> list[Path]:
    """What belongs to the rest of the device, below the names that the script removes in the
    home.
    """
    kept = [
        folder / name / "kept"
        for name in ("cni", "containers", "containers/storage", "systemd", "share/containers")
    ]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    return kept


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    for number, link in enumerate(
        (".config", ".local", ".local/share", ".cache", ".local/share/containers")
    ):
        home, folder = tmp_path / f"{number}" / "home", tmp_path / f"{number}" / "etc"
        home.mkdir(parents=True)
        kept = elsewhere(folder)
        (home / link).parent.mkdir(parents=True, exist_ok=True)
        (home / link).symlink_to(folder)
        tidy(home)
        assert [path for path in kept if not path.exists()] == [], link


def test_caches_go_and_the_home_with_them(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for name in (
        ".cache/a",
        ".config/cni/b",
        ".config/containers",
        ".local/share/containers/storage",
        ".config/systemd",
    ):
        (home / name).mkdir(parents=True)
    (home / ".cache" / "a" / "file").write_text("")
    tidy(home)
    assert not home.exists()


def test_what_scores_made_stays(tmp_path: Path) -> None:
    home = tmp_path / "home"
    unit = home / ".config/systemd/user/web.service"
    volume = home / ".local/share/containers/storage/volumes/data/_data/file"
    for path in (unit, volume):
        path.parent.mkdir(parents=True)
        path.write_text("")
    (home / ".cache").mkdir()
    tidy(home)
    assert (unit.exists(), volume.exists(), (home / ".cache").exists()) == (True, True, False)


@pytest.mark.parametrize("name", ["agent", "updater"])
def test_a_package_whose_libraries_were_taken_away_by_hand_can_be_removed(
    tmp_path: Path, name: str
) -> None:
    script, library = tmp_path / "prerm", tmp_path / name / "lib"
    script.write_text(
        (DEB / f"harmony-{name}" / "prerm")
        .read_text("utf-8")
        .replace("/opt/harmony", str(tmp_path))
    )
    for there in (False, True):
        if there:
            (library / "a" / "__pycache__" / "b").mkdir(parents=True)
        done = subprocess.run(
            ["/bin/sh", str(script), "upgrade"], check=False, capture_output=True, timeout=60
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert (list(library.iterdir()), list((library / "a").iterdir())) == ([library / "a"], [])


STANDINS = """
getent() { echo "fleet-agent:x:2000:2000:Harmony workloads:$HOME_:/usr/sbin/nologin"; }
userdel() { return 8; }
for name in usermod loginctl systemctl rm sed sleep; do eval "$name() { :; }"; done
"""
"""In place of all that would change this machine."""


def test_a_user_who_cannot_be_removed_is_named_with_what_to_do(tmp_path: Path) -> None:
    functions, _, _ = POSTRM.read_text("utf-8").partition("remove_group() {")
    script = tmp_path / "purge"
    script.write_text(
        f"{functions}\nHOME_={tmp_path}\n{STANDINS}\nremove_user\necho went on\n", "utf-8"
    )
    done = subprocess.run(
        ["/bin/sh", str(script)], check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "cannot remove the user fleet-agent" in done.stderr
    assert "pgrep --uid 2000" in done.stderr


@pytest.mark.parametrize("before", ["--replace", "--wait=3", "--config=x", "-v", "--"])
def test_what_the_launcher_takes_for_the_verb_is_the_verb(
    before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps root by the first word alone; where something stands before `join`, nobody is to
    join at all.
    """
    assert parser().parse_args(["join", "b"]).verb == "join"
    with pytest.raises(SystemExit) as ended:
        parser().parse_args([before, "join", "b"])
    assert ended.value.code == 2
    assert before in capsys.readouterr().err
