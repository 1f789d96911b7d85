"""A home that can't be written, is full, or holds what is no file: each command ends with its code
and the place, none hangs, and a running controller waits and goes on.

The file system is made so in a mount namespace of the command's own (root: modes stop nobody).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from scores.keys import DESIRED
from tests.integration.operator import Operator, a_file
from tests.natsauthority import GuardedServer
from tests.natsserver import NatsServer

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a mount namespace is root's to make")

READ_ONLY = ("mount --bind $0 $0", "mount -o remount,ro,bind $0")
FULL = ("mount -t tmpfs -o size=1m,mode=700 none $0/authority", "cp -a $0.saved/. $0/authority")
COMMAND = (sys.executable, "-c", "import sys; from harmony_fleet.cli import main; sys.exit(main())")


SEVERAL = """
import contextlib, io, json, sys
from harmony_fleet.cli import main
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    print(json.dumps([code, said.getvalue()]))
"""


async def ran(
    home: Path, steps: tuple[str, ...], commands: list[list[str]], check: str = "true"
) -> list[tuple[int, str]]:
    """Commands in a namespace in which `steps` were done to their home, and then `check`; each
    one's code and words.
    """
    process = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-ec", "\n".join((*steps, '"$@"', check)), str(home)),
        *(sys.executable, "-c", SEVERAL, json.dumps(commands)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"HARMONY_HOME": str(home)},
    )
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said
    return [(code, words) for code, words in map(json.loads, said.splitlines())]


@pytest.fixture
async def home(guarded: GuardedServer) -> Path:
    """A home with an authority, a key and a roster, applied."""
    operator = Operator(guarded, guarded.home)
    for words in (
        ("server", "push"),
        ("device", "enroll", "pi-01", "-o", str(guarded.folder / "pi-01.json")),
        ("fleet", "init"),
        ("fleet", "device", "add", "pi-01", "--class", "web", "-g", "1"),
        ("fleet", "apply"),
    ):
        assert (await operator(*words)).code == 0, words
    return guarded.home


@pytest.fixture
def guarded(tmp_path: Path):  # type: ignore[no-untyped-def]
    with GuardedServer(tmp_path) as server:
        yield server


WRITING = (
    ("fleet", "key", "new"),
    ("fleet", "device", "add", "pi-02", "--class", "web", "-g", "2"),
    ("fleet", "deployment", "add", "web", "-f", "{file}", "--class", "web", "-g", "2"),
    ("device", "enroll", "pi-02", "-o", "{home}/../pi-02.json"),
    ("device", "rotate", "pi-01", "-o", "{home}/../pi-01.json"),
    ("device", "revoke", "pi-01"),
    ("server", "objects", "more"),
)


async def test_a_home_that_is_read_only(home: Path, guarded: GuardedServer) -> None:
    file = Operator(guarded, home).file("web", a_file())
    writing = [[word.format(home=home, file=file) for word in words] for words in WRITING]
    looks = [["fleet", "status"], ["status"], ["devices"]]
    done = await ran(home, READ_ONLY, [*writing, *looks])
    assert len(done) == len(writing) + len(looks)
    for words, (code, said) in zip(writing, done, strict=False):
        assert code in (2, 5), (words, code, said)
        assert str(home) in said or code == 5, (words, said)
        assert "hint:" in said, (words, said)
    assert [code for code, _ in done[len(writing) :]] == [0, 0, 0], done


async def test_a_home_that_is_full(home: Path) -> None:
    """Of a full disk what stood before stands after."""
    shutil.copytree(home / "authority", f"{home}.saved")
    fill = "dd if=/dev/zero of=$0/authority/fill bs=1k 2>/dev/null || true"
    check = "cmp $0/authority/authority.json $0.saved/authority.json"
    commands = [["device", "revoke", "pi-01"], ["device", "rotate", "pi-01", "-o", "/dev/null"]]
    done = await ran(home, (*FULL, fill), commands, check)
    assert len(done) == len(commands)
    for code, said in done:
        assert code in (2, 5), (code, said)
        assert str(home / "authority") in said, said


async def test_a_running_controller_waits_until_the_home_can_be_written(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    operator = Operator(nats_server, tmp_path / "home")
    for words in (
        ("fleet", "init"),
        ("fleet", "device", "add", "pi-01", "--class", "web", "-g", "1"),
        ("fleet", "apply"),
    ):
        assert (await operator(*words)).code == 0, words
    home = operator.home
    roster = home / "fleet" / "roster.yaml"
    controller = await asyncio.create_subprocess_exec(
        *("unshare", "--mount", "sh", "-ec", 'mount --bind $0 $0\nexec "$@"', str(home)),
        *(*COMMAND, "fleet", "controller", "--interval", "1s"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ | operator.environment(),
    )
    try:
        assert controller.stdout is not None

        async def said(words: bytes) -> None:
            assert controller.stdout is not None
            async with asyncio.timeout(30):
                while words not in (line := await controller.stdout.readline()):
                    assert line, f"ended without {words!r}"

        await asyncio.sleep(2)
        remount(controller.pid, home, "ro")
        file = operator.file("web", a_file())
        added = (
            "fleet",
            "deployment",
            "add",
            "web",
            "-f",
            file,
            "--inline",
            "--class",
            "web",
            "-g",
            "2",
        )
        assert (await operator(*added)).code == 0
        roster.write_bytes(roster.read_bytes() + b"# by hand\n")
        await said(b"cannot")
        assert controller.returncode is None
        remount(controller.pid, home, "rw")
        async with Store(Context((nats_server.url,), None, None, tmp_path)) as store:
            async with asyncio.timeout(30):
                while not await store.entries(DESIRED):
                    await asyncio.sleep(0.1)
        assert controller.returncode is None
    finally:
        controller.send_signal(signal.SIGTERM)
        await controller.wait()


def remount(pid: int, home: Path, how: str) -> None:
    words = ["nsenter", "-t", str(pid), "-m", "mount", "-o", f"remount,{how},bind", str(home)]
    subprocess.run(words, check=True)


NO_FILES = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(5, 0)),
    "loop": lambda path: path.symlink_to(path),
}
READ = {
    "context.toml": ("status",),
    "lineage": ("apply", "{file}", "-d", "pi-01", "--dry-run"),
    "authority/authority.json": ("device", "revoke", "pi-01"),
    "authority/operator.creds": ("status",),
    "authority/ca.pem": ("status",),
    "fleet/roster.yaml": ("fleet", "status"),
    "plan.json": ("fleet", "apply", "{home}/plan.json"),
    "bundle.json": ("device", "setup", "pi@nowhere.invalid", "{home}/bundle.json"),
    "web.yaml": ("apply", "{home}/web.yaml", "-d", "pi-01"),
}


async def test_nothing_hangs_where_something_else_stands(
    home: Path, guarded: GuardedServer
) -> None:
    operator = Operator(guarded, home)
    file = operator.file("web", a_file())
    for what, make in NO_FILES.items():
        for name, words in READ.items():
            place = home / name
            kept = place.read_bytes() if place.exists() else None
            place.unlink(missing_ok=True)
            make(place)
            async with asyncio.timeout(30):
                done = await operator(*(word.format(home=home, file=file) for word in words))
            assert (done.code, "Traceback" in done.err) == (2, False), (what, name, words, done)
            place.rmdir() if what == "folder" else place.unlink()
            if kept is not None:
                place.write_bytes(kept)
                place.chmod(0o600)
