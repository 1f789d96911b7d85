"""Owners: who a file belongs to, as root; and what an agent does that may not give files away."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from harmony_agent.adapters.files.local_files import LocalFiles
from harmony_agent.adapters.host import SystemClock
from harmony_agent.adapters.posix.stat_cache import fingerprint
from harmony_agent.core.actions import Converged
from harmony_agent.core.errors import Transient
from harmony_agent.kinds.file import FileReconciler
from harmony_agent.topology.files import Attributes, FileSpec, PathQuery
from scores.file import File
from tests.contract.test_files_disk import Disk, file
from tests.fakes import drive
from tests.fakes.files import FakeObjects
from tests.fakes.store import FakeStore

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(os.geteuid() != 0, reason="cannot give files away: not root"),
]

NOBODY = 65534


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@pytest.fixture
def unprivileged(disk: Disk) -> Iterator[Disk]:
    """The root belongs to nobody, and so does the agent."""
    for path in (disk.root, disk.state):
        os.chown(path, NOBODY, NOBODY)
    above = disk.root.parent
    while above != Path("/"):
        above.chmod(above.stat().st_mode | 0o011)
        above = above.parent
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    yield disk
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(groups)


def owner(path: str) -> tuple[int, int, int]:
    status = os.lstat(path)
    return status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)


async def test_owner_and_group_are_given_and_kept(disk: Disk) -> None:
    path = disk.path()
    await disk.files.put(path, file(b"one", uid=11, gid=12, mode=0o4750), None)
    assert owner(path) == (11, 12, 0o4750)
    await disk.files.put(path, file(b"two"), (await disk.seen()).fingerprint)
    assert owner(path) == (11, 12, 0o750)
    await disk.files.put(path, file(b"three", gid=13), (await disk.seen()).fingerprint)
    assert owner(path) == (11, 13, 0o750)
    await disk.files.set_attributes(
        path, Attributes(uid=14, mode=0o2755), (await disk.seen()).fingerprint
    )
    assert owner(path) == (14, 13, 0o2755)
    os.link(path, disk.path("b"))
    await disk.files.set_attributes(path, Attributes(uid=15), (await disk.seen()).fingerprint)
    assert (owner(path), owner(disk.path("b"))) == ((15, 13, 0o2755), (14, 13, 0o2755))


async def test_parents_have_the_owner_that_the_profile_says(disk: Disk) -> None:
    """Whoever has a directory can put another thing in the place of what is in it."""
    files = LocalFiles([str(disk.root)], str(disk.state), SystemClock(), parents_owner=(21, 22))
    disk.root.joinpath("x").mkdir(mode=0o700)
    await files.make_parents([disk.path("x"), disk.path("x/y"), disk.path("x/y/z")])
    assert [owner(disk.path(name)) for name in ("x", "x/y", "x/y/z")] == [
        (0, 0, 0o700),
        (21, 22, 0o755),
        (21, 22, 0o755),
    ]
    await files.close()


async def test_a_link_has_an_owner_of_its_own(disk: Disk) -> None:
    target = disk.state / "theirs"
    target.write_bytes(b"")
    await disk.files.put(
        disk.path(), FileSpec(type="symlink", target=str(target), uid=11, gid=12), None
    )
    assert owner(disk.path())[:2] == (11, 12)
    await disk.files.put(
        disk.path(), FileSpec(type="symlink", target="t"), (await disk.seen()).fingerprint
    )
    assert owner(disk.path())[:2] == (11, 12)
    assert target.stat().st_uid == 0


async def test_a_directory_changes_hands(disk: Disk) -> None:
    await disk.files.put(disk.path(), FileSpec(type="directory", uid=11, mode=0o2770), None)
    assert owner(disk.path()) == (11, 0, 0o2770)
    await disk.files.set_attributes(
        disk.path(), Attributes(gid=12), (await disk.seen()).fingerprint
    )
    assert owner(disk.path())[:2] == (11, 12)


async def test_what_was_kept_comes_back_with_its_owner(disk: Disk) -> None:
    Path(disk.path()).write_bytes(b"theirs")
    os.chown(disk.path(), 11, 12)
    os.chmod(disk.path(), 0o4711)
    digest = "sha256:" + hashlib.sha256(b"theirs").hexdigest()
    await disk.files.back_up(disk.path(), "copy", digest, (await disk.seen()).fingerprint)
    assert owner(f"{disk.state}/former/copy") == (0, 0, 0o600)
    await disk.files.put(disk.path(), file(b"ours", uid=0), (await disk.seen()).fingerprint)
    node = FileSpec(type="file", backup="copy", digest=digest, uid=11, gid=12, mode=0o4711)
    await disk.files.put(disk.path(), node, (await disk.seen()).fingerprint)
    assert owner(disk.path()) == (11, 12, 0o4711)


async def test_an_owner_that_is_so_already_needs_no_permission(unprivileged: Disk) -> None:
    disk = unprivileged
    await disk.files.put(disk.path(), file(b"x", uid=NOBODY, gid=NOBODY, mode=0o600), None)
    await disk.files.set_attributes(
        disk.path(), Attributes(uid=NOBODY, gid=NOBODY, mode=0o640), (await disk.seen()).fingerprint
    )
    assert owner(disk.path()) == (NOBODY, NOBODY, 0o640)


async def test_what_may_not_be_is_refused_and_changes_nothing(unprivileged: Disk) -> None:
    disk = unprivileged
    await disk.files.put(disk.path(), file(b"x"), None)
    mark = (await disk.seen()).fingerprint
    for call in (
        disk.files.put(disk.path(), file(b"y", uid=0), mark),
        disk.files.set_attributes(disk.path(), Attributes(gid=0), mark),
    ):
        with pytest.raises(Transient) as caught:
            await call
        assert (caught.value.reason, caught.value.phase) == ("PermissionDenied", "Blocked")
    assert (os.listdir(disk.root), Path(disk.path()).read_bytes()) == (["a"], b"x")
    os.seteuid(0)
    disk.root.chmod(0o555)
    os.seteuid(NOBODY)
    with pytest.raises(Transient) as caught:
        await disk.files.put(disk.path("b"), file(b"y"), None)
    assert caught.value.reason == "PermissionDenied"
    os.seteuid(0)
    disk.root.chmod(0o000)
    os.seteuid(NOBODY)
    sight = await disk.files.stat_exact(PathQuery(disk.path()))
    assert sight.error is not None
    assert sight.error.reason == "PermissionDenied"


async def test_an_owner_that_nobody_asked_for_yields_to_the_content(unprivileged: Disk) -> None:
    disk = unprivileged
    os.seteuid(0)
    Path(disk.path()).write_bytes(b"theirs")
    os.seteuid(NOBODY)
    await disk.files.put(disk.path(), file(b"ours"), (await disk.seen()).fingerprint)
    assert (owner(disk.path()), Path(disk.path()).read_bytes()) == (
        (NOBODY, NOBODY, 0o644),
        b"ours",
    )


async def test_a_file_that_could_not_be_given_back_is_not_kept(unprivileged: Disk) -> None:
    disk = unprivileged
    os.seteuid(0)
    Path(disk.path()).write_bytes(b"theirs")
    os.seteuid(NOBODY)
    digest = "sha256:" + hashlib.sha256(b"theirs").hexdigest()
    with pytest.raises(Transient) as caught:
        await disk.files.back_up(disk.path(), "copy", digest, (await disk.seen()).fingerprint)
    assert caught.value.reason == "PermissionDenied"
    assert os.listdir(disk.state / "former") == []


async def test_a_file_that_its_owner_may_not_read(unprivileged: Disk) -> None:
    disk = unprivileged
    node = file(b"x", mode=0o200)
    await disk.files.put(disk.path(), node, None)
    for _ in range(2):
        assert (await disk.seen()).digest == node.digest  # as it was put
        (sight,) = await disk.files.stat_cached([PathQuery(disk.path())])
        assert sight.stat is not None
        assert sight.stat.digest == node.digest
    await disk.files.set_attributes(
        disk.path(), Attributes(mode=0o600), (await disk.seen()).fingerprint
    )
    assert owner(disk.path())[2] == 0o600
    os.chmod(disk.path(), 0o200)
    found = (await disk.agent().stat_exact(PathQuery(disk.path()))).stat
    assert found is not None
    assert found.digest is None  # nobody can tell


async def test_a_directory_that_may_be_written_but_not_listed(unprivileged: Disk) -> None:
    disk = unprivileged
    (disk.root / "x").mkdir(0o300)
    await disk.files.put(disk.path("x/a"), file(b"x"), None)
    assert (await disk.seen("x/a")).mode == 0o644
    found = await disk.seen("x")
    assert not found.empty  # it can't be told
    await disk.files.remove(disk.path("x/a"), (await disk.seen("x/a")).fingerprint)
    await disk.files.remove(disk.path("x"), found.fingerprint)
    assert os.listdir(disk.root) == []


@pytest.mark.parametrize("kind", ["symlink", "directory"])
async def test_what_could_not_be_given_back_is_not_adopted(unprivileged: Disk, kind: str) -> None:
    """Refused before anything is done to it: removal couldn't put it back."""
    disk = unprivileged
    os.seteuid(0)
    os.symlink("theirs", disk.path()) if kind == "symlink" else os.mkdir(disk.path())
    os.seteuid(NOBODY)
    store = FakeStore("File")
    kind_ = FileReconciler(disk.files, store, FakeObjects(), roots=[str(disk.root)])
    store.set_desired(File(name="a", path=disk.path(), content="ours", adopt=True))
    before = fingerprint(os.lstat(disk.path()))
    with pytest.raises(Transient) as caught:
        await drive.run(kind_, store, "a")
    assert (caught.value.reason, caught.value.phase) == ("PermissionDenied", "Blocked")
    assert fingerprint(os.lstat(disk.path())) == before
    assert os.listdir(disk.state / "former") == []
    store.unset("a")
    await drive.run(kind_, store, "a")
    assert fingerprint(os.lstat(disk.path())) == before


async def test_what_root_took_is_made_anew(unprivileged: Disk) -> None:
    disk = unprivileged
    store = FakeStore("File")
    kind = FileReconciler(disk.files, store, FakeObjects(), roots=[str(disk.root)])
    store.set_desired(
        File(name="a", path=disk.path(), content="ours", owner=str(NOBODY), mode="0644")
    )
    assert (await drive.run(kind, store, "a")).plan == Converged()
    os.seteuid(0)
    os.chown(disk.path(), 0, 0)
    os.seteuid(NOBODY)
    result = await drive.run(kind, store, "a")
    assert (result.plan, result.fields) == (Converged(), ["owner"])
    assert owner(disk.path()) == (NOBODY, NOBODY, 0o644)
    assert Path(disk.path()).read_bytes() == b"ours"
