"""What every implementation of topology.files.Files promises: asked of the fake and of the device's
own file tree.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import pytest

from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.core.errors import Transient
from harmony_agent.topology.files import (
    Attributes,
    Fetch,
    Files,
    FileSpec,
    ObjectStat,
    PathQuery,
    PathState,
    Write,
)
from tests.fakes.files import AGENT, FakeFiles


class Wall:
    """The machine's clock, as the adapter wants it."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def synchronized(self) -> bool | None:
        return None


class Device(Protocol):
    """A file tree, with hands: what people and programs do to it besides the agent."""

    files: Files
    root: str
    uid: int
    gid: int

    def place(self, path: str, content: bytes = b"", **what: Any) -> None: ...
    def drop(self, path: str) -> None: ...
    def content(self, path: str) -> bytes | None: ...
    def names(self) -> set[str]: ...


class InMemory:
    def __init__(self) -> None:
        self.tree = FakeFiles(("/srv",))
        self.files: Files = self.tree
        self.root, self.uid, self.gid = "/srv", AGENT, AGENT

    def place(self, path: str, content: bytes = b"", **what: Any) -> None:
        self.tree.set(path, content, **what)

    def drop(self, path: str) -> None:
        self.tree.drop(path)

    def content(self, path: str) -> bytes | None:
        thing = self.tree.things.get(path)
        return None if thing is None else thing.content

    def names(self) -> set[str]:
        return set(self.tree.things)


class OnDisk:
    def __init__(self, directory: Path) -> None:
        self.root = str(directory / "root")
        (directory / "root").mkdir()
        (directory / "state").mkdir()
        self.files: Files = LocalFiles([self.root], str(directory / "state"), Wall())
        self.uid, self.gid = os.geteuid(), (directory / "root").stat().st_gid

    def place(self, path: str, content: bytes = b"", **what: Any) -> None:
        where, kind = Path(path), what.pop("type", "file")
        mode, target = what.pop("mode", 0o644), what.pop("target", "")
        assert not what
        where.parent.mkdir(parents=True, exist_ok=True)
        if kind == "file":
            where.write_bytes(content)
        elif kind == "directory":
            where.mkdir()
        elif kind == "symlink":
            where.symlink_to(target)
            return
        else:
            os.mkfifo(where)
        where.chmod(mode)

    def drop(self, path: str) -> None:
        os.rmdir(path) if Path(path).is_dir() and not Path(path).is_symlink() else os.unlink(path)

    def content(self, path: str) -> bytes | None:
        return Path(path).read_bytes() if Path(path).is_file() else None

    def names(self) -> set[str]:
        return {str(path) for path in Path(self.root).rglob("*")}


@pytest.fixture(params=["fake", "real"])
async def device(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Device]:
    made: Device = InMemory() if request.param == "fake" else OnDisk(tmp_path)
    yield made
    await made.files.close()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def file(content: bytes, **fields: Any) -> FileSpec:
    return FileSpec(type="file", content=content, digest=digest(content), **fields)


def stream(content: bytes, said: str = "", **fields: Any) -> FileSpec:
    async def fetch(write: Write) -> None:
        for start in range(0, len(content), 400_000):
            await write(content[start : start + 400_000])

    source: Fetch = fetch
    return FileSpec(type="file", fetch=source, digest=said or digest(content), **fields)


async def seen(device: Device, path: str) -> ObjectStat:
    found = (await device.files.stat_exact(PathQuery(path))).stat
    assert found is not None
    return found


async def refused(doing: Any) -> str:
    with pytest.raises(Transient) as caught:
        await doing
    assert str(caught.value).startswith("cannot ")
    return caught.value.reason


# -- looking


async def test_nothing_is_there(device: Device) -> None:
    path = f"{device.root}/a"
    assert await device.files.stat_exact(PathQuery(path)) == PathState(path)
    assert list(await device.files.stat_cached([PathQuery(path)])) == [PathState(path)]


async def test_missing_parents_are_named_outermost_first(device: Device) -> None:
    device.place(f"{device.root}/x", type="directory", mode=0o755)
    sight = await device.files.stat_exact(PathQuery(f"{device.root}/x/y/z/a"))
    assert (sight.stat, sight.missing) == (None, (f"{device.root}/x/y", f"{device.root}/x/y/z"))


@pytest.mark.parametrize("content", [b"", b"hi\n", b"\0\xff\xfe", b"x" * 3_000_000])
async def test_a_file_is_seen_with_all_that_it_has(device: Device, content: bytes) -> None:
    path = f"{device.root}/a"
    device.place(path, content, mode=0o640)
    found = await seen(device, path)
    assert (found.type, found.mode, found.uid, found.gid) == ("file", 0o640, device.uid, device.gid)
    assert (found.size, found.digest, found.target) == (len(content), digest(content), None)
    (sight,) = await device.files.stat_cached([PathQuery(path)])
    assert sight.stat == found


async def test_other_things_are_seen_for_what_they_are(device: Device) -> None:
    root = device.root
    device.place(f"{root}/link", type="symlink", target="nowhere/at all")
    device.place(f"{root}/fifo", type="other")
    device.place(f"{root}/dir", type="directory", mode=0o711)
    assert (
        (await seen(device, f"{root}/link")).type,
        (await seen(device, f"{root}/link")).target,
    ) == (
        "symlink",
        "nowhere/at all",
    )
    assert (await seen(device, f"{root}/fifo")).type == "other"
    assert (
        (await seen(device, f"{root}/dir")).empty,
        (await seen(device, f"{root}/dir")).mode,
    ) == (True, 0o711)
    device.place(f"{root}/dir/x")
    assert (await seen(device, f"{root}/dir")).empty is False


async def test_no_link_in_a_parent_is_followed(device: Device) -> None:
    root = device.root
    device.place(f"{root}/real/a", b"theirs")
    device.place(f"{root}/link", type="symlink", target="real")
    device.place(f"{root}/plain", b"")
    for parent, reason in (("link", "SymlinkInPath"), ("plain", "NotADirectory")):
        path = f"{root}/{parent}/a"
        sight = await device.files.stat_exact(PathQuery(path))
        assert sight.error is not None
        assert (sight.error.reason, sight.error.phase, sight.stat) == (reason, "Blocked", None)
        (glance,) = await device.files.stat_cached([PathQuery(path)])
        assert glance.error == sight.error
        assert await refused(device.files.put(path, file(b"x"), None)) == reason
    assert device.content(f"{root}/real/a") == b"theirs"


async def test_accounts_by_name_and_number(device: Device) -> None:
    path = f"{device.root}/a"
    sight = await device.files.stat_exact(PathQuery(path, owner="root", group="0"))
    assert (sight.uid, sight.gid, sight.unknown) == (0, 0, "")
    sight = await device.files.stat_exact(PathQuery(path, owner="no-such-user"))
    assert (sight.uid, sight.unknown) == (None, "user no-such-user")
    sight = await device.files.stat_exact(PathQuery(path, owner="4242", group="no-such-group"))
    assert (sight.uid, sight.gid, sight.unknown) == (4242, None, "group no-such-group")


async def test_a_glance_shows_every_change(device: Device) -> None:
    paths = [f"{device.root}/{name}" for name in "abcd"]
    for path in paths[:3]:
        device.place(path, b"one")
    spots = [PathQuery(path) for path in paths]
    first = list(await device.files.stat_cached(spots))
    assert list(await device.files.stat_cached(spots)) == first
    device.place(
        paths[0], b"two"
    )  # of the same size, and perhaps within the same tick of the clock
    device.drop(paths[1])
    device.place(paths[3], type="directory", mode=0o755)
    second = list(await device.files.stat_cached(spots))
    assert [sight.stat.digest if sight.stat else None for sight in second] == [
        digest(b"two"),
        None,
        digest(b"one"),
        None,
    ]
    assert second[2] == first[2]
    assert list(await device.files.stat_cached([])) == []


# -- putting


@pytest.mark.parametrize("make", [file, stream])
async def test_a_file_is_put_and_replaced(device: Device, make: Callable[..., FileSpec]) -> None:
    path, large = f"{device.root}/a", b"\0y" * 1_300_000
    await device.files.put(path, make(b"one"), None)
    found = await seen(device, path)
    assert (device.content(path), found.mode) == (b"one", 0o644)
    await device.files.put(path, make(large, mode=0o400), found.fingerprint)
    found = await seen(device, path)
    assert (device.content(path), found.mode, found.digest) == (large, 0o400, digest(large))
    assert device.names() == {path}


async def test_a_mode_that_is_not_asked_for_stays_without_setuid(device: Device) -> None:
    path = f"{device.root}/a"
    device.place(path, b"one", mode=0o4751)
    await device.files.put(path, file(b"two"), (await seen(device, path)).fingerprint)
    assert (await seen(device, path)).mode == 0o751


async def test_a_stream_of_another_content_changes_nothing(device: Device) -> None:
    path = f"{device.root}/a"
    device.place(path, b"one")
    mark = (await seen(device, path)).fingerprint
    assert (
        await refused(device.files.put(path, stream(b"two", digest(b"three")), mark))
        == "DigestMismatch"
    )
    assert (device.content(path), device.names()) == (b"one", {path})


async def test_a_stream_that_breaks_changes_nothing(device: Device) -> None:
    async def fetch(write: Write) -> None:
        await write(b"x" * 2_000_000)
        raise Transient("ObjectMissing", "cannot fetch it")

    path = f"{device.root}/a"
    node = FileSpec(type="file", fetch=fetch, digest=digest(b""))
    assert await refused(device.files.put(path, node, None)) == "ObjectMissing"
    assert device.names() == set()


async def test_what_appeared_or_changed_meanwhile_is_left_alone(device: Device) -> None:
    path = f"{device.root}/a"
    device.place(path, b"one")
    mark = (await seen(device, path)).fingerprint
    assert await refused(device.files.put(path, file(b"x"), None)) == "ChangedMeanwhile"
    device.place(path, b"another")
    for call in (
        device.files.put(path, file(b"x"), mark),
        device.files.set_attributes(path, Attributes(mode=0o600), mark),
        device.files.remove(path, mark),
        device.files.back_up(path, "copy", digest(b"one"), mark),
    ):
        assert await refused(call) == "ChangedMeanwhile"
    assert (device.content(path), device.names()) == (b"another", {path})
    device.drop(path)
    assert await refused(device.files.put(path, file(b"x"), mark)) == "ChangedMeanwhile"
    assert device.names() == set()


async def test_a_missing_parent(device: Device) -> None:
    assert (
        await refused(device.files.put(f"{device.root}/x/a", file(b"x"), None)) == "ParentMissing"
    )


KINDS = {
    "file": FileSpec(type="file", content=b"x", digest=digest(b"x")),
    "directory": FileSpec(type="directory"),
    "symlink": FileSpec(type="symlink", target="t"),
}


@pytest.mark.parametrize("before", [*KINDS, "other"])
@pytest.mark.parametrize("after", KINDS)
async def test_any_type_for_any_other(device: Device, before: str, after: str) -> None:
    path = f"{device.root}/a"
    device.place(
        path, b"old", type=before, target="old", **({} if before == "symlink" else {"mode": 0o700})
    )
    if before == after == "directory":
        return  # is amended, never put
    await device.files.put(path, KINDS[after], (await seen(device, path)).fingerprint)
    found = await seen(device, path)
    assert (found.type, found.target) == (after, "t" if after == "symlink" else None)
    assert (
        found.mode
        == {"file": 0o700 if before == "file" else 0o644, "directory": 0o755, "symlink": 0o777}[
            after
        ]
    )
    assert device.names() == {path}


@pytest.mark.parametrize("after", ["file", "symlink"])
async def test_a_directory_that_holds_something_is_not_replaced(device: Device, after: str) -> None:
    path = f"{device.root}/a"
    device.place(f"{path}/held", b"x")
    mark = (await seen(device, path)).fingerprint
    assert await refused(device.files.put(path, KINDS[after], mark)) == "DirectoryNotEmpty"
    assert await refused(device.files.remove(path, mark)) == "DirectoryNotEmpty"
    assert device.names() == {path, f"{path}/held"}


# -- amending, removing, sweeping, parents


@pytest.mark.parametrize("kind", ["file", "directory"])
async def test_a_mode_is_changed_in_place(device: Device, kind: str) -> None:
    path = f"{device.root}/a"
    device.place(path, b"", type=kind, mode=0o700)
    await device.files.set_attributes(
        path,
        Attributes(mode=0o750, uid=device.uid, gid=device.gid),
        (await seen(device, path)).fingerprint,
    )
    found = await seen(device, path)
    assert (found.type, found.mode, found.uid) == (kind, 0o750, device.uid)


@pytest.mark.parametrize("kind", ["file", "directory", "symlink", "other"])
async def test_anything_is_removed_by_its_name(device: Device, kind: str) -> None:
    path = f"{device.root}/a"
    device.place(path, b"", type=kind, target="t")
    await device.files.remove(path, (await seen(device, path)).fingerprint)
    assert device.names() == set()


async def test_sweeping_where_nothing_is_left(device: Device) -> None:
    device.place(f"{device.root}/a", b"x")
    await device.files.sweep(f"{device.root}/a")
    await device.files.sweep(f"{device.root}/no/such/parent")
    assert device.names() == {f"{device.root}/a"}


async def test_parents_come_and_go(device: Device) -> None:
    root = device.root
    device.place(f"{root}/x", type="directory", mode=0o700)
    parents = [f"{root}/x", f"{root}/x/y", f"{root}/x/y/z"]
    await device.files.make_parents(parents)
    assert [(await seen(device, path)).mode for path in parents] == [0o700, 0o755, 0o755]
    device.place(f"{root}/x/held")
    assert list(await device.files.drop_parents(parents)) == [f"{root}/x"]
    assert device.names() == {f"{root}/x", f"{root}/x/held"}
    assert (
        list(
            await device.files.drop_parents([f"{root}/x/y", f"{root}/x/held", f"{root}/x/held/no"])
        )
        == []
    )
    assert device.names() == {f"{root}/x", f"{root}/x/held"}


# -- copies of what was there


async def test_a_copy_is_kept_put_back_and_forgotten(device: Device) -> None:
    path, content = f"{device.root}/a", b"theirs\0" * 200_000
    device.place(path, content, mode=0o640)
    await device.files.back_up(
        path, "copy", digest(content), (await seen(device, path)).fingerprint
    )
    assert (await device.files.stat_exact(PathQuery(path, "copy"))).has_backup
    assert not (await device.files.stat_exact(PathQuery(path, "other"))).has_backup
    await device.files.put(path, file(b"ours"), (await seen(device, path)).fingerprint)
    node = FileSpec(type="file", backup="copy", digest=digest(content), mode=0o640)
    await device.files.put(path, node, (await seen(device, path)).fingerprint)
    assert (device.content(path), (await seen(device, path)).mode) == (content, 0o640)
    await device.files.forget("copy")
    await device.files.forget("copy")
    assert not (await device.files.stat_exact(PathQuery(path, "copy"))).has_backup


async def test_a_newer_copy_takes_the_place_of_an_older(device: Device) -> None:
    path = f"{device.root}/a"
    for content in (b"one", b"two"):
        device.place(path, content)
        await device.files.back_up(
            path, "copy", digest(content), (await seen(device, path)).fingerprint
        )
    node = FileSpec(type="file", backup="copy", digest=digest(b"two"))
    await device.files.put(f"{device.root}/b", node, None)
    assert device.content(f"{device.root}/b") == b"two"


# -- events


async def test_events_name_what_was_looked_at(device: Device) -> None:
    root = device.root
    device.place(f"{root}/x", type="directory", mode=0o755)
    paths = [f"{root}/a", f"{root}/x/b", f"{root}/x/c"]
    changed: list[str] = []
    arrived = asyncio.Event()

    def note(path: str) -> None:
        changed.append(path)
        arrived.set()

    async def told(path: str) -> None:
        async with asyncio.timeout(5):
            while path not in changed:
                arrived.clear()
                await arrived.wait()
        changed.clear()

    await device.files.stat_exact(PathQuery(paths[0]))
    task = asyncio.create_task(device.files.watch(note))
    await asyncio.sleep(0.01)
    await device.files.stat_cached([PathQuery(path) for path in paths])
    device.place(paths[0], b"made")
    await told(paths[0])
    device.place(paths[0], b"edited")
    await told(paths[0])
    device.place(paths[1], b"made")
    await told(paths[1])
    device.drop(paths[1])
    await told(paths[1])
    device.place(f"{root}/x/unwanted", b"")
    device.place(paths[2], type="directory", mode=0o755)
    await told(paths[2])
    assert f"{root}/x/unwanted" not in changed
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
