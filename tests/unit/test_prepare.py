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

    def make(root: str, _uid: int, _gid: int) -> list[str]:
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
