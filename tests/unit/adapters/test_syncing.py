"""One call makes many objects durable where that is safe and worth it, and nowhere else."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmony_agent.adapters.posix import mounts, syncing, syscalls

EXT4, FAT, FUSE = "ext4", "vfat", "fuse.sshfs"
ENOUGH = syncing.FEW + 1


class Disk:
    """Stands for the calls to the kernel."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.type, self.dirty, self.calls, self.error = EXT4, 0, 0, 0
        monkeypatch.setattr(mounts, "file_system", lambda _fd: self.type)
        monkeypatch.setattr(syscalls, "syncfs", self.sync)
        monkeypatch.setattr(syncing, "_dirty", lambda: self.dirty)

    def sync(self, _fd: int) -> None:
        self.calls += 1
        if self.error:
            raise OSError(self.error, os.strerror(self.error))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_many_are_one_call(disk: Disk) -> None:
    assert syncing.sync_all(0, ENOUGH, 0)
    assert disk.calls == 1


def test_few_are_synced_one_by_one(disk: Disk) -> None:
    assert not syncing.sync_all(0, syncing.FEW, 0)
    assert disk.calls == 0


@pytest.mark.parametrize("kind", [FAT, FUSE])
def test_a_file_system_whose_call_promises_less_is_left_out(disk: Disk, kind: str) -> None:
    disk.type = kind
    assert not syncing.sync_all(0, ENOUGH, 0)
    assert disk.calls == 0


def test_it_does_not_wait_for_much_that_others_wrote(disk: Disk) -> None:
    disk.dirty = 64 << 20
    assert not syncing.sync_all(0, ENOUGH, 1 << 20)
    assert disk.calls == 0
    assert syncing.sync_all(0, ENOUGH, 64 << 20)  # which is what was just written


def test_an_error_may_be_of_others_so_that_each_is_asked(disk: Disk) -> None:
    disk.error = 28
    assert not syncing.sync_all(0, ENOUGH, 0)


@pytest.mark.parametrize("count", [0, 1, 3, 50])
def test_each_is_synced_once(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    assert syncing.sync_each(range(count)) == [None] * count
    assert sorted(synced) == list(range(count))


def test_an_error_is_of_the_one_that_failed(tmp_path: Path) -> None:
    reading, writing = os.pipe()  # has nothing to sync, and says that
    files = [os.open(tmp_path / f"{at}", os.O_CREAT | os.O_WRONLY) for at in range(20)]
    try:
        errors = syncing.sync_each([*files[:10], writing, *files[10:]])
    finally:
        for fd in (reading, writing, *files):
            os.close(fd)
    assert [at for at, error in enumerate(errors) if error is not None] == [10]


def test_all_are_synced_where_there_are_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert syncing.sync_each(range(9)) == [None] * 9
    assert synced == list(range(9))


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY)
    yield fd
    os.close(fd)


def test_the_kernel_answers(folder: int, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    assert mounts.file_system(folder) == mounts.file_system_at(str(tmp_path)) != ""
    assert mounts.file_system_at("/proc") == "proc"
    syscalls.syncfs(folder)
    assert syncing._dirty() >= 0
    with pytest.raises(OSError, match="descriptor"):
        syscalls.syncfs(9999)
