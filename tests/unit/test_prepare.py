"""What root does before the agent starts, whatever stands in the configuration."""

from __future__ import annotations

import grp
import os
import pwd
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PREPARE = Path(__file__).parents[2] / "deploy/deb/harmony-agent/files/usr/lib/harmony-agent/prepare"


@pytest.fixture
def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with places and a user of this test."""
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    spec = spec_from_loader("prepare", SourceFileLoader("prepare", str(PREPARE)))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("MADE", "RULES", "TMPFILES"):
        monkeypatch.setattr(module, name, str(tmp_path / name.lower()))
    me = pwd.getpwuid(os.getuid())
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: me)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: grp.getgrgid(me.pw_gid))
    return module


@pytest.mark.parametrize(
    "config",
    [
        {"files": 7},
        {"files": {"roots": 7}},
        {"files": {"roots": [7, "", "srv", "/a/../b"]}},
        {"systemd": []},
    ],
    ids=["section", "roots", "root", "systemd"],
)
def test_a_configuration_that_cannot_be_used_is_left_to_the_agent(
    prepare: ModuleType, config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def make(root: str, *_: object) -> list[str]:
        made.append(root)
        return []

    monkeypatch.setattr(prepare, "make", make)
    assert prepare.main({"files": {"roots": []}} | config) == 0
    assert set(made) <= {"/srv"}, "what is no table is as none"


def test_roots_are_made_and_noted_and_no_link_is_followed(
    prepare: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path.resolve()
    (base / "elsewhere").mkdir()
    (base / "link").symlink_to(base / "elsewhere")
    roots = [f"{base}/link/x", f"{base}/a/b", f"{base}/elsewhere"]
    assert prepare.main({"files": {"roots": roots}}) == 0
    assert list((base / "elsewhere").iterdir()) == []
    assert Path(prepare.MADE).read_text().splitlines() == [f"{base}/a", f"{base}/a/b"]
    assert f"cannot make the File root {base}/link/x" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot give directories away: not root")
def test_a_root_is_roots_in_the_system_profile_and_given_back(
    prepare: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was made here, and has the owner that the other profile gave it."""
    monkeypatch.setattr(prepare, "PROFILE", str(tmp_path))
    user = pwd.struct_passwd(("fleet-agent", "x", 4321, 4322, "", "/", "/bin/false"))
    group = grp.struct_group(("fleet-agent", "x", 4322, []))
    monkeypatch.setattr(pwd, "getpwnam", lambda _name: user)
    monkeypatch.setattr(grp, "getgrnam", lambda _name: group)
    made, changed, theirs = (tmp_path / name for name in ("roots/deep", "changed", "theirs"))
    theirs.mkdir()

    def run(scope: str) -> list[tuple[int, int]]:
        roots = [str(path) for path in (made, changed, theirs)]
        assert prepare.main({"files": {"roots": roots}, "systemd": {"scope": scope}}) == 0
        return [(path.stat().st_uid, path.stat().st_gid) for path in (made, changed, theirs)]

    assert run("user") == [(4321, 4322), (4321, 4322), (0, 0)]
    os.chown(changed, 7, 7)
    assert run("system") == [(0, 0), (7, 7), (0, 0)]
    assert run("user") == [(4321, 4322), (7, 7), (0, 0)]
    assert (tmp_path / "roots").stat().st_uid == 0
    monkeypatch.setattr(prepare, "PROFILE", f"{tmp_path}/none")  # the package isn't there
    assert run("system") == [(4321, 4322), (7, 7), (0, 0)]


@pytest.mark.skipif(os.geteuid() != 0, reason="cannot give directories away: not root")
def test_srv_is_closed_in_the_system_profile(prepare: ModuleType, tmp_path: Path) -> None:
    folder = tmp_path / "srv"
    folder.mkdir(mode=0o755)
    opened, closed = (0o1775, 4322), (0o755, 0)

    def tend(gid: int, other: int) -> tuple[int, int]:
        at = os.open(folder, os.O_RDONLY)
        prepare.tend_srv(at, os.fstat(at), gid, other)
        os.close(at)
        return folder.stat().st_mode & 0o7777, folder.stat().st_gid

    assert tend(0, 4322) == closed
    assert tend(4322, 0) == opened
    assert Path(prepare.TMPFILES).exists()
    assert tend(4322, 0) == opened
    assert tend(0, 4322) == closed
    assert not Path(prepare.TMPFILES).exists()
    folder.chmod(0o700)
    assert tend(4322, 0) == (0o700, 0), "as somebody made it"
