"""Which paths are closed to every Score, by whatever name they go."""

from __future__ import annotations

from pathlib import Path

import pytest

from harmony_agent.adapters.protected_paths import ProtectedPaths
from harmony_agent.core.paths import PathSet, below


@pytest.mark.parametrize(
    ("path", "directory", "is_below"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/ab", "/a", False),
        ("/", "/a", False),
        ("/a", "", True),
    ],
)
def test_below(path: str, directory: str, is_below: bool) -> None:
    assert below(path, directory) is is_below


@pytest.mark.parametrize(
    ("path", "file", "mount"),
    [
        ("/srv/web", True, True),
        ("/etc/hosts", True, True),
        ("/etc/harmony/x", False, False),
        ("/etc", False, False),
        ("/var", False, False),
        ("/state/x", False, False),
        ("/keys/device.creds", False, False),
        ("/keys", False, False),
        ("/run/harmony-updater/updater.sock", False, False),
        ("/run/user/1000/podman/podman.sock", False, False),
        ("/etc/systemd/system/harmony-agent.service", False, True),
        ("/opt/harmony/agent", False, True),
        ("/proc/1/root", False, True),
        ("/usr", False, True),
        ("/", False, False),
    ],
)
def test_what_is_closed(tmp_path: Path, path: str, file: bool, mount: bool) -> None:
    guarded = ProtectedPaths(["/state", "/keys/device.creds", ""], str(tmp_path), ["/srv"])
    assert PathSet(guarded.files).touched_by(path) is not file
    assert PathSet(guarded.mounts).touched_by(path) is not mount


def test_homes_and_links(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "home")
    (tmp_path / "root").symlink_to(tmp_path)
    guarded = ProtectedPaths([], f"{tmp_path}/way", [f"{tmp_path}/root"])
    for home in ("way", "home", "root/home"):
        assert PathSet(guarded.files).touched_by(
            f"{tmp_path}/{home}/.config/systemd/user/x.service"
        ), home
        assert PathSet(guarded.mounts).touched_by(f"{tmp_path}/{home}/.local"), home
        assert not PathSet(guarded.files).touched_by(f"{tmp_path}/{home}/data"), home
