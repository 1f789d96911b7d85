"""The kind File through the whole agent on a real Debian: each field set, changed, drifted and
removed; its faults.

One device a suite, with two agents: fleet-agent's own, and one of root for what only root may.
"""

import base64
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from scores import File, Manifest
from scores.file import MAX_INLINE, MAX_OBJECT, ObjectRef
from scores.status import DeploymentStatus, FileDetail
from tests.device.agent import to_toml
from tests.device.control import Control
from tests.device.files import FileStat
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.prepare import USER

USERS, ROOTS = "pi-01", "pi-01-root"
SECRET = "never-to-be-seen-4711"


@dataclass
class Stage:
    """A device with its two agents, and the control plane's hand."""

    device: Device
    control: Control

    def converge(
        self, *scores: File, agent: str = USERS, deployment: str = "files"
    ) -> DeploymentStatus:
        return self.control.converge(agent, Manifest(deployment=deployment, scores=scores))

    def want(self, *scores: File, agent: str = USERS, deployment: str = "files") -> None:
        self.control.apply(agent, Manifest(deployment=deployment, scores=scores))

    def remove(self, agent: str = USERS, deployment: str = "files") -> None:
        self.control.remove(agent, deployment)

    def wait_for(
        self, phase: str, reason: str, key: str, agent: str = USERS, deployment: str = "files"
    ) -> str:
        """Wait until a resource is so; its message."""

        def good(status: DeploymentStatus) -> bool:
            found = status.resources.get(key)
            return found is not None and (found.phase, found.reason) == (phase, reason)

        return self.control.until(agent, deployment, good).resources[key].message

    def repaired(
        self, key: str, fields: set[str], agent: str = USERS, deployment: str = "files"
    ) -> None:
        """Wait until a drift of exactly these fields was repaired."""

        def good(status: DeploymentStatus) -> bool:
            found = status.resources[key]
            return (
                found.drift is not None
                and set(found.drift.fields) == fields
                and found.phase == "Ready"
            )

        self.control.until(agent, deployment, good)

    def unfinished(self) -> str:
        """Temporary files of any agent."""
        found = ["find", "/srv", "/var/lib/harmony-agent", "/var/lib/harmony-root", "-xdev"]
        return self.device.run([*found, "-name", ".harmony-*~"]).stdout

    def all_stats(self, *folders: str) -> str:
        """Inode, times and names of everything below."""
        return self.device.run(["find", *folders, "-printf", "%p %i %m %u %g %s %T@ %C@\n"]).stdout


def config(device_id: str, state: str) -> dict[str, dict[str, object]]:
    return {
        "agent": {"device_id": device_id, "state_dir": state, "kinds": ["File"]},
        "nats": {"servers": ["nats://nats:4222"]},
        "files": {"roots": ["/srv"]},
        "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
    }


@pytest.fixture(scope="module", params=SUITES)
def stage(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Stage]:
    lan = lab.lan()
    device = lab.device(request.param, lan)
    try:
        with Control(lan.nats.host_url) as control:
            device.agent.install(config(USERS, "/var/lib/harmony-agent"))
            device.make_folder("/var/lib/harmony-root", mode=0o700)
            device.make_folder("/srv/root")
            root = config(ROOTS, "/var/lib/harmony-root") | {"files": {"roots": ["/srv/root"]}}
            device.write("/etc/harmony/root.toml", to_toml(root))
            command = ["/usr/local/bin/harmony-agent", "run", "--config", "/etc/harmony/root.toml"]
            device.run(["systemd-run", "--quiet", "--unit=harmony-root", *command])
            yield Stage(device, control)
    finally:
        device.close()
        lan.close()


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def file_detail(status: DeploymentStatus, key: str) -> FileDetail:
    found = status.resources[key].status
    assert isinstance(found, FileDetail)
    return found


BYTES = bytes(range(256)) * 16
LARGE = "é" * (MAX_INLINE // 2)


def test_every_field_is_set_kept_changed_repaired_and_removed(stage: Stage) -> None:
    device = stage.device
    big = hashlib.sha256(b"seed").digest() * (MAX_OBJECT // 32)
    stage.control.put_object("assets", "big", big)
    stage.control.put_object("assets", "small", b"small")
    device.write("/srv/web/kept/theirs", "theirs\n", mode=0o640, owner=USER)
    device.run(["ln", "-s", "/etc/hostname", "/srv/web/unwanted"])
    device.run(
        [
            "chown",
            "--no-dereference",
            f"{USER}:{USER}",
            "/srv/web",
            "/srv/web/kept",
            "/srv/web/unwanted",
        ]
    )

    def scores(**change: File) -> list[File]:
        return list(({**first, **change}).values())

    first = {
        "text": File(
            name="text",
            path="/srv/web/a/b/text",
            content="one\n",
            mode="0640",
            owner=USER,
            group=USER,
            parents=True,
        ),
        "bytes": File(
            name="bytes", path="/srv/web/bytes", content_base64=base64.b64encode(BYTES).decode()
        ),
        "large": File(name="large", path="/srv/web/large", content=LARGE),
        "big": File(
            name="big",
            path="/srv/web/big",
            object=ObjectRef(bucket="assets", name="big", digest=digest(big)),
        ),
        "dir": File(name="dir", path="/srv/web/dir", type="directory", mode="1750"),
        "inside": File(
            name="inside", path="/srv/web/dir/inside", content="in\n", after=["File/dir"]
        ),
        "link": File(name="link", path="/srv/web/link", type="symlink", target="a/b/text"),
        "adopted": File(
            name="adopted", path="/srv/web/kept/theirs", content="ours\n", mode="0600", adopt=True
        ),
        "absent": File(name="absent", path="/srv/web/unwanted", type="absent", adopt=True),
    }

    # set
    stage.control.apply(USERS, Manifest(deployment="files", scores=scores()))
    status = stage.control.wait(USERS, "files", timeout=60)
    text = device.stat("/srv/web/a/b/text")
    assert (text.kind, text.mode, text.owner, text.group) == ("regular file", 0o640, USER, USER)
    assert device.read("/srv/web/a/b/text") == b"one\n"
    assert device.stat("/srv/web/a").mode == 0o755
    assert (device.read("/srv/web/bytes"), device.stat("/srv/web/bytes").mode) == (BYTES, 0o644)
    assert device.read_text("/srv/web/large") == LARGE
    assert device.run(["sha256sum", "/srv/web/big"]).stdout[:64] == digest(big)[7:]
    assert (device.stat("/srv/web/dir").kind, device.stat("/srv/web/dir").mode) == (
        "directory",
        0o1750,
    )
    assert device.stat("/srv/web/link").target == "a/b/text"
    assert (device.read("/srv/web/kept/theirs"), device.stat("/srv/web/kept/theirs").mode) == (
        b"ours\n",
        0o600,
    )
    assert not device.exists("/srv/web/unwanted")
    detail = file_detail(status, "File/text")
    shown = (detail.state, detail.digest, detail.mode, detail.owner, detail.group)
    assert shown == ("PresentAt", digest(b"one\n"), "0640", USER, USER)
    assert [file_detail(status, f"File/{name}").state for name in ("dir", "link", "absent")] == [
        "Directory",
        "Symlink",
        "Absent",
    ]

    # a second pass, the relists of some seconds, and a start anew: nothing changes
    time.sleep(1.5)  # what converged is noted a moment later
    before = stage.all_stats("/srv/web")
    ledger = stage.all_stats("/var/lib/harmony-agent")
    stage.control.resync(USERS)
    time.sleep(2.5)
    assert stage.all_stats("/srv/web") == before
    assert stage.all_stats("/var/lib/harmony-agent") == ledger
    device.agent.restart()
    stage.control.resync(USERS)
    time.sleep(1.5)
    assert stage.all_stats("/srv/web") == before

    # drifted
    for key, fields, command in (
        ("text", {"content"}, ["dd", "status=none", "of=/srv/web/a/b/text"]),
        ("text", {"content", "mode"}, ["chmod", "0604", "/srv/web/a/b/text"]),
        ("bytes", {"content_base64"}, ["truncate", "--size=5", "/srv/web/bytes"]),
        ("large", {"type"}, ["rm", "/srv/web/large"]),
        (
            "big",
            {"object"},
            ["dd", "status=none", "conv=notrunc", "if=/dev/zero", "of=/srv/web/big", "count=1"],
        ),
        ("dir", {"mode"}, ["chmod", "0700", "/srv/web/dir"]),
        ("inside", {"type"}, ["mv", "/srv/web/dir/inside", "/srv/web/dir/moved"]),
        ("link", {"target"}, ["ln", "--symbolic", "--force", "/etc/passwd", "/srv/web/link"]),
        ("adopted", {"mode"}, ["chmod", "0644", "/srv/web/kept/theirs"]),
        ("absent", {"type"}, ["mkfifo", "/srv/web/unwanted"]),
    ):
        device.run(command, user=USER, input=b"by hand")
        stage.repaired(f"File/{key}", fields)
    device.remove("/srv/web/dir/moved")
    assert device.read("/srv/web/a/b/text") == b"one\n"
    assert device.stat("/srv/web/a/b/text").mode == 0o640
    assert device.run(["sha256sum", "/srv/web/big"]).stdout[:64] == digest(big)[7:]
    assert device.stat("/srv/web/link").target == "a/b/text"
    assert not device.exists("/srv/web/unwanted")

    # changed
    second = scores(
        text=File(name="text", path="/srv/web/c/text", content="two\n", mode="0604", parents=True),
        bytes=File(name="bytes", path="/srv/web/bytes", content="text now", mode="0400"),
        large=File(name="large", path="/srv/web/large", type="directory"),
        big=File(
            name="big",
            path="/srv/web/big",
            object=ObjectRef(bucket="assets", name="small", digest=digest(b"small")),
        ),
        dir=File(name="dir", path="/srv/web/dir", type="directory", mode="0711"),
        link=File(name="link", path="/srv/web/link", type="symlink", target="c/text"),
        absent=File(name="absent", path="/srv/web/unwanted", content="wanted\n", adopt=True),
    )
    stage.converge(*second)
    assert device.read("/srv/web/c/text") == b"two\n"
    assert device.stat("/srv/web/c/text").mode == 0o604
    assert not device.exists("/srv/web/a")
    assert (device.read("/srv/web/bytes"), device.stat("/srv/web/bytes").mode) == (
        b"text now",
        0o400,
    )
    assert device.stat("/srv/web/large").kind == "directory"
    assert device.read("/srv/web/big") == b"small"
    assert device.stat("/srv/web/dir").mode == 0o711
    assert device.stat("/srv/web/link").target == "c/text"
    assert device.read("/srv/web/unwanted") == b"wanted\n"

    # removed: what was there before is back, nothing else is left
    stage.remove()
    left = device.run(["find", "/srv/web", "/var/lib/harmony-agent/former"]).stdout.split()
    assert sorted(left) == [
        "/srv/web",
        "/srv/web/kept",
        "/srv/web/kept/theirs",
        "/srv/web/unwanted",
        "/var/lib/harmony-agent/former",
    ]
    theirs = device.stat("/srv/web/kept/theirs")
    assert (device.read("/srv/web/kept/theirs"), theirs.mode, theirs.owner) == (
        b"theirs\n",
        0o640,
        USER,
    )
    assert device.stat("/srv/web/unwanted").target == "/etc/hostname"
    assert stage.unfinished() == ""


def test_owners_as_root(stage: Stage) -> None:
    device = stage.device

    def owners(path: str) -> tuple[str, str, int]:
        found: FileStat = device.stat(path)
        return found.owner, found.group, found.mode

    device.write("/srv/root/theirs", "theirs", mode=0o4711, owner="daemon")
    device.run(["chmod", "4711", "/srv/root/theirs"])
    files = [
        File(
            name="file",
            path="/srv/root/x/file",
            content="x",
            owner=USER,
            group="daemon",
            mode="0640",
            parents=True,
        ),
        File(name="dir", path="/srv/root/dir", type="directory", owner="1", group="daemon"),
        File(name="link", path="/srv/root/link", type="symlink", target="t", owner="daemon"),
        File(name="theirs", path="/srv/root/theirs", content="ours", owner="root", adopt=True),
    ]
    stage.converge(*files, agent=ROOTS)
    assert owners("/srv/root/x/file") == (USER, "daemon", 0o640)
    assert owners("/srv/root/dir") == ("daemon", "daemon", 0o755)
    assert owners("/srv/root/link")[0] == "daemon"
    assert owners("/srv/root/theirs") == ("root", "daemon", 0o711)
    inode = device.stat("/srv/root/x/file").inode
    device.run(["chown", "root:root", "/srv/root/x/file", "/srv/root/dir"])
    device.run(["chown", "--no-dereference", "root", "/srv/root/link"])
    for key, fields in (
        ("file", {"owner", "group"}),
        ("dir", {"owner", "group"}),
        ("link", {"owner"}),
    ):
        stage.repaired(f"File/{key}", fields, agent=ROOTS)
    assert owners("/srv/root/x/file") == (USER, "daemon", 0o640)
    assert device.stat("/srv/root/x/file").inode == inode  # changed in place
    files[0] = File(
        name="file", path="/srv/root/x/file", content="x", owner="daemon", group="0", parents=True
    )
    files.append(File(name="nobody", path="/srv/root/nobody", content="x", owner="no-such-user"))
    stage.want(*files, agent=ROOTS)
    assert "no-such-user" in stage.wait_for("Blocked", "UnknownOwner", "File/nobody", agent=ROOTS)
    stage.wait_for("Ready", "", "File/file", agent=ROOTS)
    assert owners("/srv/root/x/file") == ("daemon", "root", 0o640)
    device.run(["useradd", "--no-create-home", "no-such-user"])
    stage.control.wait(ROOTS, "files")
    stage.remove(agent=ROOTS)
    assert owners("/srv/root/theirs") == ("daemon", "daemon", 0o4711)
    assert device.read("/srv/root/theirs") == b"theirs"
    assert device.run(["ls", "-A", "/srv/root"]).stdout.split() == ["theirs"]


def test_what_is_not_ours_and_what_may_not_be(stage: Stage) -> None:
    device = stage.device
    device.write("/srv/mine/theirs", "theirs")
    device.write("/srv/mine/outside", "outside", mode=0o600)
    device.run(["chown", "-R", f"{USER}:{USER}", "/srv/mine"])
    device.run(["ln", "--symbolic", "/etc", "/srv/mine/link"], user=USER)
    device.run(["ln", "/srv/mine/outside", "/srv/mine/hard"], user=USER)
    device.run(["mkfifo", "/srv/mine/fifo"], user=USER)
    stage.want(
        File(name="theirs", path="/srv/mine/theirs", content="ours"),
        File(name="link", path="/srv/mine/link/passwd", content="ours", adopt=True),
        File(name="fifo", path="/srv/mine/fifo", content="ours", adopt=True),
        File(name="owner", path="/srv/mine/owner", content="ours", owner="root"),
        File(name="parent", path="/srv/mine/no/such/parent", content="ours"),
        File(name="hard", path="/srv/mine/hard", content="ours", mode="0644", adopt=True),
        deployment="mine",
    )
    for key, phase, reason in (
        ("theirs", "Blocked", "OwnershipConflict"),
        ("link", "Blocked", "SymlinkInPath"),
        ("fifo", "Blocked", "FormerUnsupported"),
        ("owner", "Blocked", "PermissionDenied"),
        ("parent", "Degraded", "ParentMissing"),
        ("hard", "Ready", ""),
    ):
        stage.wait_for(phase, reason, f"File/{key}", deployment="mine")
    assert device.read("/srv/mine/theirs") == b"theirs"
    assert device.stat("/srv/mine/fifo").kind == "fifo"
    assert (device.read("/srv/mine/outside"), device.stat("/srv/mine/outside").mode) == (
        b"outside",
        0o600,
    )
    assert device.read("/srv/mine/hard") == b"ours"
    assert not device.exists("/srv/mine/owner")
    device.run(["mkdir", "--parents", "/srv/mine/no/such"], user=USER)
    stage.wait_for("Ready", "", "File/parent", deployment="mine")
    for path in ("/etc/passwd", "/var/lib/harmony-agent/ledger", "/srv"):
        stage.want(File(name="a", path=path, content=""), deployment="mine")
        stage.control.until(
            USERS, "mine", lambda s: s.rejected is not None and s.phase == "Rejected"
        )
    stage.control.apply(USERS, Manifest(deployment="mine", removed=True))
    stage.control.until(USERS, "mine", lambda s: s.phase == "Removed")
    found = device.run(["find", "/srv/mine", "-type", "f"]).stdout.split()
    assert sorted(found) == ["/srv/mine/hard", "/srv/mine/outside", "/srv/mine/theirs"]
    assert device.read("/srv/mine/hard") == b"outside"


def test_a_full_and_a_read_only_file_system(stage: Stage) -> None:
    device = stage.device
    device.run(["mkdir", "--parents", "/srv/small"])
    device.run(
        ["mount", "-t", "tmpfs", "-o", f"size=256k,mode=0755,uid={USER}", "tmpfs", "/srv/small"],
        check=False,
    )
    if "/srv/small" not in device.read_text("/proc/mounts"):
        device.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=0777", "tmpfs", "/srv/small"])
    path = "/srv/small/a"
    stage.converge(File(name="a", path=path, content=f"{SECRET}\n"), deployment="small")
    device.run(["dd", "if=/dev/zero", "of=/srv/small/filler", "bs=4k"], check=False)
    stage.want(File(name="a", path=path, content=SECRET * 1000), deployment="small")
    message = stage.wait_for("Degraded", "NoSpace", "File/a", deployment="small")
    assert message == f"cannot write {path}: the file system is full; free some space"
    assert device.read_text(path) == f"{SECRET}\n"
    assert device.run(["ls", "-A", "/srv/small"]).stdout.split() == ["a", "filler"]
    device.remove("/srv/small/filler")
    stage.control.wait(USERS, "small", timeout=40)
    assert device.read_text(path) == SECRET * 1000
    device.run(["mount", "-o", "remount,ro", "/srv/small"])
    stage.want(File(name="a", path=path, content="other"), deployment="small")
    stage.wait_for("Degraded", "ReadOnlyFileSystem", "File/a", deployment="small")
    device.run(["mount", "-o", "remount,rw", "/srv/small"])
    stage.control.wait(USERS, "small", timeout=40)
    stage.remove(deployment="small")
    device.run(["umount", "/srv/small"])
    journal = "\n".join(device.agent.messages())
    assert SECRET not in journal
    assert "NoSpace" in journal
    assert SECRET not in str(stage.control.raw_status(USERS, "small"))


def test_a_copy_that_is_lost_is_missed(stage: Stage) -> None:
    device = stage.device
    device.write("/srv/lost/theirs", "theirs", owner=USER)
    device.run(["chown", f"{USER}:", "/srv/lost"])
    stage.converge(
        File(name="a", path="/srv/lost/theirs", content="ours", adopt=True), deployment="lost"
    )
    device.run(["mv", "/var/lib/harmony-agent/former", "/var/lib/harmony-agent/away"])
    stage.control.apply(USERS, Manifest(deployment="lost", removed=True))
    assert "former/" in stage.wait_for("Blocked", "FormerLost", "File/a", deployment="lost")
    assert device.read("/srv/lost/theirs") == b"ours"
    device.run(["mv", "/var/lib/harmony-agent/away", "/var/lib/harmony-agent/former"])
    stage.control.resync(USERS)
    stage.control.wait(USERS, "lost", phase="Removed", timeout=30)
    assert device.read("/srv/lost/theirs") == b"theirs"


def test_orphaned_and_only_reported(stage: Stage) -> None:
    device = stage.device
    device.make_folder("/srv/let", owner=USER)
    stage.converge(
        File(name="orphan", path="/srv/let/orphan", content="x", on_remove="orphan"),
        File(name="report", path="/srv/let/report", content="x", drift="report"),
        deployment="let",
    )
    device.write("/srv/let/report", "by hand")
    stage.wait_for("Degraded", "DriftReported", "File/report", deployment="let")
    assert device.read("/srv/let/report") == b"by hand"
    stage.remove(deployment="let")
    assert device.run(["ls", "/srv/let"]).stdout.split() == ["orphan"]


def test_killed_while_generations_change(stage: Stage) -> None:
    """SIGKILL at many moments: the newest generation is reached, nothing is left over."""
    device, agent = stage.device, stage.device.agent
    device.make_folder("/srv/kill", owner=USER)
    for number in range(20):
        stage.want(
            *(
                File(
                    name=f"f{n}",
                    path=f"/srv/kill/{number % 3}/f{n}",
                    content=f"{number}\n" * 3000,
                    parents=True,
                )
                for n in range(10)
            ),
            deployment="kill",
        )
        time.sleep(0.013 * number)
        agent.await_new_pid(agent.kill())
    stage.control.wait(USERS, "kill", timeout=40)
    found = device.run(["find", "/srv/kill", "-type", "f"]).stdout.split()
    assert sorted(found) == [f"/srv/kill/1/f{n}" for n in range(10)]
    assert device.read_text("/srv/kill/1/f9") == "19\n" * 3000
    assert stage.unfinished() == ""
    stage.remove(deployment="kill")
    assert device.run(["find", "/srv/kill"]).stdout.split() == ["/srv/kill"]


def test_what_is_reported_survives_a_power_cut(lab: Lab) -> None:
    """Converged means durable: the power goes the moment it is said."""
    lan = lab.lan()
    device = lab.device(SUITES[0], lan, durable=True)
    try:
        with Control(lan.nats.host_url) as control:
            device.agent.install(config(USERS, "/var/lib/harmony-agent"))
            device.run(["sync"])  # the installation, not what the agent does later
            for number in range(3):
                content = f"{number}\n" * 20_000
                score = File(name="a", path=f"/srv/cut/{number}/a", content=content, parents=True)
                control.converge(USERS, Manifest(deployment="cut", scores=[score]))
                device.power_cut(boot=False)
                assert (device.root / f"srv/cut/{number}/a").read_text() == content
                device.boot()
                control.until(USERS, "cut", lambda s: s.phase == "Converged")
            assert [path.name for path in (device.root / "srv/cut").iterdir()] == ["2"]
    finally:
        device.close()
        lan.close()
