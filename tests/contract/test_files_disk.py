"""The device's own file tree, where no fake could tell: links, inodes, clocks, disks that hang,
missing calls.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.adapters.files import read as filelook
from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.adapters.posix import syscalls
from harmony_agent.adapters.posix.atomic import temp_name
from harmony_agent.adapters.posix.executor import BoundedExecutor, Job
from harmony_agent.adapters.posix.inotify import Watcher
from harmony_agent.adapters.posix.path_errors import transient
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import MAX_READ, Attributes, FileSpec, ObjectStat, PathQuery


class Clock:
    """The machine's wall clock, and a monotonic one that a test may push on."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def synchronized(self) -> bool | None:
        return None


class Disk:
    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.state = directory / "state"
        self.root.mkdir()
        self.state.mkdir()
        self.clock = Clock()
        self.files = self.agent()

    def agent(
        self, roots: list[str] | None = None, rename: object = syscalls.renameat2
    ) -> LocalFiles:
        """Another one, as after a start."""
        return LocalFiles(roots or [str(self.root)], str(self.state), self.clock, rename=rename)  # type: ignore[arg-type]

    def path(self, name: str = "a") -> str:
        return str(self.root / name)

    async def seen(self, name: str = "a") -> ObjectStat:
        found = (await self.files.stat_exact(PathQuery(self.path(name)))).stat
        assert found is not None
        return found


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def file(content: bytes, **fields: int) -> FileSpec:
    return FileSpec(
        type="file",
        content=content,
        digest="sha256:" + hashlib.sha256(content).hexdigest(),
        **fields,
    )  # type: ignore[arg-type]


def unlike_renameat2(_old: str, _new: str, _fd: int, _flags: int) -> bool:
    """A file system without renameat2."""
    return False


# -- links


async def test_other_names_of_a_file_are_not_touched(disk: Disk) -> None:
    outside = disk.state / "theirs"
    outside.write_bytes(b"theirs")
    outside.chmod(0o600)
    os.link(outside, disk.path())
    before = outside.stat()
    await disk.files.set_attributes(
        disk.path(), Attributes(mode=0o644), (await disk.seen()).fingerprint
    )
    assert ((await disk.seen()).mode, Path(disk.path()).read_bytes()) == (0o644, b"theirs")
    assert Path(disk.path()).stat().st_ino != before.st_ino
    os.unlink(disk.path())
    os.link(outside, disk.path())
    await disk.files.put(disk.path(), file(b"ours"), (await disk.seen()).fingerprint)
    after = outside.stat()
    assert (outside.read_bytes(), after.st_mode, after.st_ino) == (
        b"theirs",
        before.st_mode,
        before.st_ino,
    )
    assert os.listdir(disk.root) == ["a"]


async def test_a_link_at_the_path_is_replaced_not_followed(disk: Disk) -> None:
    outside = disk.state / "theirs"
    outside.write_bytes(b"theirs")
    outside.chmod(0o600)
    os.symlink(outside, disk.path())
    mark = (await disk.seen()).fingerprint
    with pytest.raises(Transient) as caught:
        await disk.files.set_attributes(disk.path(), Attributes(mode=0o777), mark)
    assert caught.value.reason == "SymlinkInPath"
    await disk.files.put(disk.path(), file(b"ours", mode=0o644), mark)
    assert (outside.read_bytes(), outside.stat().st_mode & 0o777) == (b"theirs", 0o600)
    assert not os.path.islink(disk.path())


async def test_a_fifo_is_neither_read_nor_written(disk: Disk) -> None:
    os.mkfifo(disk.path())
    found = await disk.seen()
    assert (found.type, found.digest) == ("other", None)
    await disk.files.put(disk.path(), file(b"ours"), found.fingerprint)
    assert Path(disk.path()).read_bytes() == b"ours"


async def test_a_parent_that_becomes_a_link_fools_no_glance(disk: Disk) -> None:
    inside = disk.root / "x"
    inside.mkdir()
    (inside / "a").write_bytes(b"same")
    spot = PathQuery(disk.path("x/a"))
    await asyncio.sleep(0.15)
    for _ in range(2):
        (sight,) = await disk.files.stat_cached([spot])
    assert sight.stat is not None
    inside.rename(disk.state / "x")
    inside.symlink_to(disk.state / "x")  # the very same file, by another way
    (sight,) = await disk.files.stat_cached([spot])
    assert sight.error is not None
    assert sight.error.reason == "SymlinkInPath"
    for call in (
        disk.files.put(spot.path, file(b"ours"), None),
        disk.files.sweep(spot.path),
        disk.files.make_parents([disk.path("x/y")]),
    ):
        with pytest.raises(Transient) as caught:
            await call
        assert caught.value.reason == "SymlinkInPath"
    assert os.listdir(disk.state / "x") == ["a"]


async def test_a_root_may_be_reached_by_a_link(disk: Disk) -> None:
    other = disk.state / "link"
    other.symlink_to(disk.root)
    files = disk.agent([str(other)])
    files._paths.administrator = os.geteuid()
    await files.put(f"{other}/a", file(b"ours"), None)
    assert (disk.root / "a").read_bytes() == b"ours"
    await asyncio.sleep(0.15)
    for _ in range(3):
        (sight,) = await files.stat_cached([PathQuery(f"{other}/a")])
    assert sight.stat is not None


@pytest.mark.parametrize("where", ["root", "above"])
async def test_a_link_of_anybody_else_leads_to_no_root(disk: Disk, where: str) -> None:
    """Whoever may rename a root, or what it is in, could else lead the agent to its own secrets."""
    other = disk.state / "link"
    other.symlink_to(disk.root if where == "root" else disk.root.parent)
    root = str(other) if where == "root" else f"{other}/{disk.root.name}"
    files = disk.agent([root])
    files._paths.administrator = os.geteuid() + 1
    sight = await files.stat_exact(PathQuery(f"{root}/a"))
    assert sight.error is not None
    assert sight.error.reason == "SymlinkInPath"
    with pytest.raises(Transient) as caught:
        await files.put(f"{root}/a", file(b"ours"), None)
    assert caught.value.reason == "SymlinkInPath"
    assert not (disk.root / "a").exists()


async def test_no_root_holds_the_path_or_the_root_is_missing(disk: Disk) -> None:
    for path, reason in (
        ("/elsewhere/a", "PathOutsideRoots"),
        (f"{disk.state}/no/a", "RootMissing"),
    ):
        files = disk.agent([str(disk.root), f"{disk.state}/no"])
        sight = await files.stat_exact(PathQuery(path))
        assert sight.error is not None
        assert sight.error.reason == reason
        with pytest.raises(Transient) as caught:
            await files.put(path, file(b"x"), None)
        assert (caught.value.reason, caught.value.phase) == (reason, "Blocked")


# -- what is unfinished


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
async def test_what_a_killed_agent_left_is_found_replaced_and_swept(disk: Disk, kind: str) -> None:
    temp = disk.root / temp_name(disk.path())
    make: dict[str, Callable[[], object]] = {
        "file": lambda: temp.write_bytes(b"half"),
        "directory": temp.mkdir,
        "link": lambda: temp.symlink_to("t"),
    }
    make[kind]()
    files = disk.agent()
    assert (await files.stat_exact(PathQuery(disk.path()))).leftover
    await files.put(disk.path(), file(b"ours"), None)
    assert os.listdir(disk.root) == ["a"]
    assert not (await files.stat_exact(PathQuery(disk.path()))).leftover
    make[kind]()
    await files.sweep(disk.path())
    assert os.listdir(disk.root) == ["a"]


async def test_what_is_unfinished_and_holds_something_stays(disk: Disk) -> None:
    temp = disk.root / temp_name(disk.path())
    temp.mkdir()
    (temp / "theirs").write_bytes(b"")
    with pytest.raises(Transient) as caught:
        await disk.files.sweep(disk.path())
    assert caught.value.reason == "DirectoryNotEmpty"
    with pytest.raises(Transient):
        await disk.files.put(disk.path(), file(b"ours"), None)
    assert (await disk.files.stat_exact(PathQuery(disk.path()))).leftover


# -- a file system without renameat2


@pytest.mark.parametrize("before", ["nothing", "file", "directory", "link"])
@pytest.mark.parametrize(
    "node", [file(b"x"), FileSpec(type="directory"), FileSpec(type="symlink", target="t")]
)
async def test_without_renameat2(disk: Disk, before: str, node: FileSpec) -> None:
    files = disk.agent(rename=unlike_renameat2)
    path = Path(disk.path())
    mark = None
    if before != "nothing":
        make: dict[str, Callable[[], object]] = {
            "file": path.touch,
            "directory": path.mkdir,
            "link": lambda: path.symlink_to("u"),
        }
        make[before]()
        mark = (await disk.seen()).fingerprint
    if before != "directory" or node.type != "directory":
        await files.put(str(path), node, mark)
    assert os.listdir(disk.root) == ["a"]
    assert (await disk.seen()).type == node.type


async def test_without_renameat2_what_appears_is_left_alone(disk: Disk) -> None:
    def appear(_old: str, new: str, _fd: int, _flags: int) -> bool:
        (disk.root / new).write_bytes(b"theirs")
        return False

    for node in (file(b"x"), FileSpec(type="directory"), FileSpec(type="symlink", target="t")):
        with pytest.raises(Transient) as caught:
            await disk.agent(rename=appear).put(disk.path(), node, None)
        assert caught.value.reason == "ChangedMeanwhile"
        assert (os.listdir(disk.root), Path(disk.path()).read_bytes()) == (["a"], b"theirs")
        os.unlink(disk.path())


async def test_a_directory_that_comes_to_hold_something_while_it_is_exchanged_comes_back(
    disk: Disk,
) -> None:
    def late(old: str, new: str, fd: int, flags: int) -> bool:
        if (disk.root / new).is_dir() and not os.listdir(disk.root / new):
            (disk.root / new / "theirs").write_bytes(b"")
        return syscalls.renameat2(old, new, fd, flags)

    os.mkdir(disk.path())
    mark = (await disk.seen()).fingerprint
    with pytest.raises(Transient) as caught:
        await disk.agent(rename=late).put(disk.path(), file(b"x"), mark)
    assert caught.value.reason == "DirectoryNotEmpty"
    assert (os.listdir(disk.root), os.listdir(disk.path())) == (["a"], ["theirs"])


def test_renameat2_says_what_is_wrong(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(FileNotFoundError):
            syscalls.renameat2("no", "such", fd, syscalls.NOREPLACE)
        (tmp_path / "a").touch()
        assert (
            syscalls.renameat2("a", "b", fd, 1 << 30) is False
        )  # a flag that no file system knows
    finally:
        os.close(fd)


# -- what is remembered


async def test_content_is_read_again_within_the_hour(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    spots = [PathQuery(disk.path(f"{number}")) for number in range(20)]
    for spot in spots:
        Path(spot.path).write_bytes(b"x")
    await asyncio.sleep(0.15)
    reads: list[str] = []
    opened = os.open

    def count(path: object, flags: int, *args: object, **kwargs: object) -> int:
        if not flags & (os.O_PATH | os.O_DIRECTORY):
            reads.append(str(path))
        return opened(path, flags, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", count)
    await disk.files.stat_cached(spots)
    assert len(reads) == 20
    reads.clear()
    await disk.files.stat_cached(spots)
    assert reads == []
    disk.clock.ahead = 2700
    await disk.files.stat_cached(spots)
    assert 0 < len(reads) < 20  # spread
    disk.clock.ahead = 3600
    await disk.files.stat_cached(spots)
    assert set(reads) == {str(number) for number in range(20)}


async def test_a_change_within_the_same_tick_is_seen(disk: Disk) -> None:
    for number in range(50):
        Path(disk.path()).write_bytes(b"%02d" % number)
        (sight,) = await disk.files.stat_cached([PathQuery(disk.path())])
        assert sight.stat is not None
        assert sight.stat.digest == "sha256:" + hashlib.sha256(b"%02d" % number).hexdigest()


async def test_a_large_file_is_read_once_and_one_beyond_the_limit_never(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = 0, filelook.read_digest

    def counted(fd: int, job: Job, **more: Any) -> str | None:
        nonlocal reads
        reads += 1
        return read(fd, job, **more)

    monkeypatch.setattr(filelook, "read_digest", counted)
    large, huge = Path(disk.path("large")), Path(disk.path("huge"))
    with large.open("wb") as target:
        target.truncate(MAX_READ)
    with huge.open("wb") as target:
        target.truncate(MAX_READ + 1)
    await asyncio.sleep(0.15)
    digest = (await disk.seen("large")).digest
    assert digest is not None
    for _ in range(50):
        assert (await disk.seen("large")).digest == digest
    assert (await disk.seen("huge")).digest is None
    assert reads == 1


async def test_a_look_leaves_no_access_time(disk: Disk) -> None:
    Path(disk.path()).write_bytes(b"x")
    os.utime(disk.path(), (1, time.time()))
    await disk.seen()
    assert os.stat(disk.path()).st_atime == 1


async def test_what_is_no_longer_glanced_at_is_forgotten(disk: Disk) -> None:
    for name in "xyz":
        Path(disk.path(name)).mkdir()
    spots = [PathQuery(disk.path(f"{name}/file")) for name in "xyz"]
    await disk.files.stat_cached(spots)
    await disk.files.stat_cached(spots[:1])
    sights = disk.files._cache
    assert set(sights._known._entries) == sights._swept == {disk.path("x/file")}
    assert sights._synced == {disk.path("x")}


async def test_what_was_put_back_and_is_not_looked_at_again_is_forgotten(disk: Disk) -> None:
    node = file(b"theirs")
    for name in "ab":
        await disk.files.stat_exact(PathQuery(disk.path(name)))
        await disk.files.put(disk.path(name), node, None)
    await disk.files.stat_cached([PathQuery(disk.path("a"))])
    assert set(disk.files._fresh) == {disk.path("a")}


async def test_several_roots_at_one_glance(disk: Disk) -> None:
    inner = disk.root / "inner"
    inner.mkdir()
    files = disk.agent([str(disk.root), str(inner)])
    (inner / "b").write_bytes(b"")
    paths = [f"{inner}/b", disk.path("a"), "/elsewhere/c"]
    sights = list(await files.stat_cached([PathQuery(path) for path in paths]))
    assert [sight.path for sight in sights] == paths
    assert [sight.stat is not None for sight in sights] == [True, False, False]


# -- disks that hang


async def test_a_disk_that_hangs_holds_up_nothing_else() -> None:
    threads, release = BoundedExecutor(transient), threading.Event()
    changed: list[str] = []

    def hang(job: Job) -> None:
        release.wait(10)
        job.check()
        changed.append("late")

    async def run(lane: str, key: str, seconds: float, work: object = hang) -> str:
        try:
            await threads.run(lane, key, f"write {key}", seconds, work)  # type: ignore[arg-type]
        except Transient as error:
            return f"{error.phase}/{error.reason}"
        return ""

    stuck = [asyncio.create_task(run("/nfs", f"/nfs/{number}", 0.1)) for number in range(6)]
    assert await run("/srv", "/srv/a", 5, lambda _job: None) == ""
    assert await asyncio.gather(*stuck) == ["Unknown/Timeout"] * 6
    assert (
        await run("/nfs", "/nfs/0", 5) == "Unknown/Timeout"
    )  # at once: the first attempt still hangs
    release.set()
    async with asyncio.timeout(5):
        while await run("/nfs", "/nfs/0", 5, lambda _job: None):
            await asyncio.sleep(0.01)
    assert changed == []


# -- events


async def test_events_of_a_tree_that_comes_goes_and_is_replaced(disk: Disk) -> None:
    watcher = Watcher()
    path, changed = disk.path("x/y/a"), asyncio.Queue[str]()
    watcher.follow(path)
    task = asyncio.create_task(watcher.run(changed.put_nowait))
    await asyncio.sleep(0)

    async def told() -> None:
        assert await asyncio.wait_for(changed.get(), 5) == path
        while not changed.empty():
            changed.get_nowait()
        watcher.follow(path)  # as the look does that follows

    (disk.root / "x").mkdir()
    await told()
    (disk.root / "x/y").mkdir()
    await told()
    Path(path).write_bytes(b"")
    await told()
    os.rename(disk.root / "x/y", disk.root / "x/z")
    await told()
    (disk.root / "x/y").mkdir()
    await told()
    Path(path).write_bytes(b"")
    await told()
    os.rename(
        disk.root / "x", disk.root / "w"
    )  # above what is watched: found by the inode at the next relist
    os.makedirs(disk.root / "x/y")
    watcher.retain([path], {str(disk.root / "x/y"): (disk.root / "x/y").stat().st_ino})
    Path(path).write_bytes(b"")
    await told()
    (disk.root / f"x/y/{temp_name(path)}").write_bytes(b"")
    (disk.root / "x/y/other").write_bytes(b"")
    watcher.retain([], {})
    Path(path).write_bytes(b"more")
    await asyncio.sleep(0.05)
    assert changed.empty()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_lost_events_are_events_of_all(disk: Disk) -> None:
    watcher = Watcher()
    paths = [disk.path(name) for name in "ab"]
    watcher.retain(paths, {})
    overflow = b"\xff\xff\xff\xff" + syscalls.IN_Q_OVERFLOW.to_bytes(4, "little") + bytes(8)
    assert sorted(watcher._affected(overflow)) == paths
    assert watcher._affected(b"\x07\0\0\0" + bytes(12)) == []  # of a watch that was given up


async def test_where_no_watch_is_left_the_relist_must_do(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none_left(_fd: int, _path: str, _mask: int) -> int:
        raise OSError(28, "no space")

    monkeypatch.setattr(syscalls, "inotify_add", none_left)
    watcher = Watcher()
    task = asyncio.create_task(watcher.run(lambda _path: None))
    await asyncio.sleep(0)
    watcher.retain([disk.path("a"), disk.path("x/b")], {})
    assert caplog.text.count("max_user_watches") == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
