"""While events come, a list looks at few paths; whatever makes no event is found within five
minutes, and what a lost event was about at the next list.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest

from harmony_agent.adapters.files.listing import SPREAD
from harmony_agent.adapters.posix import inotify
from harmony_agent.topology.files import PathQuery, PathState
from tests.contract.test_files_disk import Disk

COUNT = 60
PERIOD = 10.0


class Watched:
    """A disk with `COUNT` files in two folders, listed until events are all that is needed."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.looked: list[str] = []
        self.paths = [disk.path(f"{'xy'[at % 2]}/z/{at}") for at in range(COUNT)]
        self.queries = [PathQuery(path) for path in self.paths]
        for path in self.paths:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(b"old")
            os.utime(path, (1, 1))

    async def list(self) -> list[PathState]:
        """One list, a period later."""
        self.disk.clock.ahead += PERIOD
        self.looked.clear()
        return list(await self.disk.files.stat_cached(self.queries))

    async def digest(self, path: str) -> str | None:
        state = next(state for state in await self.list() if state.path == path)
        return state.stat.digest if state.stat is not None else None

    @contextmanager
    def counting(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        lstat: Callable[..., os.stat_result] = os.lstat

        def count(path: str) -> os.stat_result:
            if path in self.paths:
                self.looked.append(path)
            return lstat(path)

        monkeypatch.setattr(os, "lstat", count)
        yield


@asynccontextmanager
async def watching(disk: Disk) -> AsyncIterator[Watched]:
    watched = Watched(disk)
    task = asyncio.create_task(disk.files.watch(lambda _path: None))
    await asyncio.sleep(0.15)  # so that the files' last change is no longer of this moment
    try:
        for _ in range(3):
            await watched.list()
        yield watched
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    async with watching(Disk(tmp_path)) as made:
        with made.counting(monkeypatch):
            yield made


async def test_a_list_at_rest_looks_at_its_share_and_at_all_within_five_minutes(
    watched: Watched,
) -> None:
    share = COUNT * PERIOD / SPREAD
    looked: set[str] = set()
    before = await watched.disk.files.stat_cached(watched.queries)
    for _ in range(int(SPREAD / PERIOD)):
        await watched.list()
        assert len(watched.looked) <= share + 1
        looked |= set(watched.looked)
    assert looked == set(watched.paths)
    assert await watched.disk.files.stat_cached(watched.queries) is before


async def test_an_event_is_enough(watched: Watched) -> None:
    path, old = watched.paths[7], await watched.digest(watched.paths[7])
    Path(path).write_bytes(b"new")
    await asyncio.sleep(0.05)
    assert await watched.digest(path) != old
    os.unlink(path)
    await asyncio.sleep(0.05)
    assert await watched.digest(path) is None


async def test_a_write_through_another_name_is_found_within_five_minutes(
    watched: Watched, tmp_path: Path
) -> None:
    path = watched.paths[3]
    os.link(path, tmp_path / "other")
    await asyncio.sleep(0.05)
    old = await watched.digest(path)
    (tmp_path / "other").write_bytes(b"NEW")
    for _ in range(int(SPREAD / PERIOD)):
        if await watched.digest(path) != old:
            break
    else:
        raise AssertionError("it was never noticed")


async def test_a_folder_above_that_is_replaced_is_found_at_the_next_list(
    watched: Watched,
) -> None:
    path, root = watched.paths[0], watched.disk.root
    os.rename(root / "x", root / "w")
    (root / "x/z").mkdir(parents=True)
    Path(path).write_bytes(b"another")
    old = await watched.digest(watched.paths[1])
    assert await watched.digest(path) != old


async def test_events_that_were_lost_are_made_up_for_by_the_next_list(
    watched: Watched,
) -> None:
    """The queue of the kernel overflows while the agent does something else."""
    path, old = watched.paths[9], await watched.digest(watched.paths[9])
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    epoch = watched.disk.files._watcher.epoch
    for at in range(most + 10):  # two in turn, for one event after its like is dropped
        os.chmod(watched.paths[11 + 2 * (at % 2)], 0o600 + at % 64)
    Path(path).write_bytes(b"new")
    while watched.disk.files._watcher.epoch == epoch:
        await asyncio.sleep(0)
    assert await watched.digest(path) != old
    assert sorted(set(watched.looked)) == sorted(watched.paths)


async def test_without_events_every_list_looks_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unwatched = Watched(Disk(tmp_path))
    await asyncio.sleep(0.15)
    await unwatched.list()
    with unwatched.counting(monkeypatch):
        await unwatched.list()
    assert sorted(unwatched.looked) == sorted(unwatched.paths)


async def test_on_a_file_system_that_others_change_every_list_looks_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify, "_EVENTFUL", frozenset())
    async with watching(Disk(tmp_path)) as shared:
        with shared.counting(monkeypatch):
            await shared.list()
    assert sorted(shared.looked) == sorted(shared.paths)


async def test_what_just_changed_is_looked_at_until_its_time_tells(watched: Watched) -> None:
    path = watched.paths[5]
    Path(path).write_bytes(b"1")
    await asyncio.sleep(0.01)
    await watched.list()
    await watched.list()
    assert path in watched.looked or await watched.digest(path)
    await asyncio.sleep(0.15)
    for _ in range(3):
        await watched.list()
    assert len(watched.looked) <= COUNT * PERIOD / SPREAD + 1
