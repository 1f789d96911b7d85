"""Env files on a real file system: nothing outside the roots is read, whatever stands in the
way.
"""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from harmony_agent.adapters import env_files
from harmony_agent.adapters.env_files import MOST_BYTES, LocalEnvFiles
from harmony_agent.adapters.posix import stat_cache
from harmony_agent.core.errors import Transient


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(b"P=hunter2")
    return tmp_path / "root"


async def test_reads_and_digests(root: Path) -> None:
    files = LocalEnvFiles([f"{root}/"])
    path = root / "sub" / "e"
    path.write_bytes(b"A=1")
    assert await files.read(str(path)) == b"A=1"
    assert await files.digests([str(path)]) == {str(path): digest(b"A=1")}
    assert await files.digests([]) == {}
    path.write_bytes(b"A=2")
    assert await files.digests([str(path)]) == {str(path): digest(b"A=2")}
    path.unlink()
    assert await files.digests([str(path)]) == {str(path): None}
    assert await files.read(str(path)) is None


async def test_what_did_not_change_is_read_again_only_while_it_is_racy(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[bytes] = []

    def counted(descriptor: int) -> bytes:
        read.append(content(descriptor))
        return read[-1]

    content = env_files._content
    monkeypatch.setattr(env_files, "_content", counted)
    monkeypatch.setattr(stat_cache, "RACY_SECONDS", 60.0)
    files = LocalEnvFiles([str(root)])
    path = root / "e"
    path.write_bytes(b"A=1")
    for _ in range(2):  # it may change once more without another time of change
        assert await files.digests([str(path)]) == {str(path): digest(b"A=1")}
    assert len(read) == 2
    monkeypatch.setattr(stat_cache, "RACY_SECONDS", -1)
    for _ in range(2):
        assert await files.digests([str(path)]) == {str(path): digest(b"A=1")}
    assert len(read) == 3
    path.write_bytes(b"A=22")
    assert await files.digests([str(path)]) == {str(path): digest(b"A=22")}
    assert len(read) == 4


async def test_nothing_outside_is_read(root: Path) -> None:
    files = LocalEnvFiles([str(root)])
    (root / "link").symlink_to(root.parent / "secret")
    (root / "up").symlink_to(root.parent)
    os.mkfifo(root / "fifo")
    (root / "large").write_bytes(b"#" * (MOST_BYTES + 1))
    for path in ("link", "up/secret", "fifo", "sub", "large", "nope/e", "../secret"):
        assert await files.read(f"{root}/{path}") is None, path
    for path in (str(root.parent / "secret"), f"{root}x/e", "/etc/passwd"):
        assert await files.read(path) is None, path


async def test_the_whole_file_system_may_be_a_root(root: Path) -> None:
    assert await LocalEnvFiles(["/"]).read(str(root.parent / "secret")) == b"P=hunter2"


async def test_a_disk_that_hangs_is_told_and_holds_up_nothing_else(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "good").write_bytes(b"A=1")
    (root / "hangs").write_bytes(b"B=1")
    release, content = threading.Event(), env_files._content

    def slow(descriptor: int) -> bytes:
        found = content(descriptor)
        if found == b"B=1":
            release.wait(10)
        return found

    monkeypatch.setattr(env_files, "_content", slow)
    monkeypatch.setattr(env_files, "_SECONDS", 0.1)
    files = LocalEnvFiles([str(root)])
    for _ in range(2):
        with pytest.raises(Transient) as caught:
            await files.digests([f"{root}/hangs"])
        assert (caught.value.reason, caught.value.phase) == ("Timeout", "Unknown")
    monkeypatch.setattr(env_files, "_SECONDS", 20.0)
    assert await files.read(f"{root}/good") == b"A=1"
    release.set()
