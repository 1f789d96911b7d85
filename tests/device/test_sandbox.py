"""What an enemy tries on a device, as a workload and through manifests: each refused, and each
would be noticed if not.

One device for each Debian and profile. `attacks` is the program that runs there.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

from scores import Container, File, Manifest, SystemdUnit
from scores.keys import command_subject
from scores.manifest import AnyScore
from scores.status import DeploymentStatus
from tests.device.hostile import FOLDER, PRIVILEGED, SECRET, Site, attacker, enemy
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import PI, eventually
from tests.device.packages import AGENT, HOME
from tests.device.prepare import BUSYBOX, USER

UNIT_FOLDER = f"{HOME}/.config/systemd/user"
ALL = "secrets,places,process,identity,manager,updater"
FIXED = {"updater: capabilities", "identity: map a subordinate group"}
"""What anybody in the group may, and shows that the other attempts get as far as that."""


@pytest.fixture(scope="module", params=SUITES)
def suite(request: pytest.FixtureRequest) -> str:
    """Each Debian in turn."""
    return str(request.param)


@pytest.fixture(scope="module")
def user(lab: Lab, suite: str) -> Iterator[Site]:
    """A device in the user profile."""
    with enemy(lab, suite, "user") as site:
        site.load_image()
        yield site


@pytest.fixture(scope="module")
def system(lab: Lab, suite: str) -> Iterator[Site]:
    """A device in the system profile."""
    with enemy(lab, suite, "system") as site:
        yield site


def done(found: Mapping[str, str]) -> set[str]:
    """The attacks that were no failure."""
    assert found
    return {name for name, outcome in found.items() if outcome == "done"}


def unseen(found: Mapping[str, str]) -> set[str]:
    """The attacks whose aim isn't there at all."""
    return {name for name, outcome in found.items() if outcome.startswith("missing")}


def container(name: str = "box", **fields: Any) -> Container:
    """A container of busybox."""
    base = {
        "name": name,
        "image": BUSYBOX,
        "command": ["/bin/true"],
        "restart": "never",
        "stop_grace_seconds": 0,
    }
    return Container.model_validate({**base, **fields})


def binds(*pairs: tuple[str, str], read_only: bool = True) -> list[dict[str, Any]]:
    """Mounts of these sources at these targets."""
    return [
        {"type": "bind", "source": source, "target": target, "read_only": read_only}
        for source, target in pairs
    ]


# -- as a workload
# ---------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_a_unit_of_the_agents_user_gets_nowhere(user: Site) -> None:
    user.converge(attacker(user.argv("unit", ALL)), deployment="web")
    found = user.outcome("unit")
    user.remove("web")
    assert done(found) == FIXED, found
    assert unseen(found) <= {"identity: newgrp"}, found


@pytest.mark.timeout(300)
def test_a_container_with_all_that_podman_can_give_gets_nowhere(user: Site) -> None:
    """It sees the device's processes and every file, as root of its own user namespace."""
    before = [*PRIVILEGED, "--volume=/:/device:rslave", BUSYBOX, "/bin/chroot", "/device"]
    found = user.attack("privileged", ALL, *before, user=USER)
    assert done(found) == {"updater: capabilities"}, found
    assert unseen(found) <= {"identity: newgrp"}, found


@pytest.mark.timeout(300)
def test_a_container_of_a_manifest_sees_nothing_of_it(user: Site) -> None:
    libraries = binds(("/usr", "/usr"), ("/usr/lib", "/lib"), ("/usr/lib64", "/lib64"))
    mounts = [*libraries, *binds((FOLDER, FOLDER), read_only=False)]
    command = user.argv("container", "secrets,process,updater")
    user.converge(
        container(command=command, mounts=mounts, cap_add=["ALL"], network="host", user="0"),
        deployment="box",
    )
    found = user.outcome("container")
    user.remove("box")
    assert done(found) == set(), found


@pytest.mark.timeout(300)
def test_what_it_says_of_itself_is_no_secret(user: Site) -> None:
    """Its command line may be read by all; nobody but root and the agent asks it how it is."""
    assert SECRET not in user.as_workload(
        "cat", f"/proc/{user.main_pid()}/cmdline", f"/proc/{user.main_pid()}/status"
    )
    for verb in ("status", "plan", "check"):
        said = user.as_workload("harmony-agent", verb, check=False)
        assert "cannot read the configuration /etc/harmony/agent.toml: Permission denied" in said, (
            said
        )
    assert user.device.run(["harmony-agent", "status"], check=False).rc in (0, 1)


@pytest.mark.timeout(300)
def test_killed_by_a_workload_it_is_back(user: Site) -> None:
    """A signal is all that the same user can do to it."""
    before = user.main_pid()
    user.as_workload("kill", "-KILL", str(before))
    eventually(lambda: user.main_pid() not in (0, before), "the agent is started again")
    user.control.resync(PI, 60)


SLOW = """\
import ctypes, os, sys
libc = ctypes.CDLL(None)
for task in os.listdir(f"/proc/{sys.argv[1]}/task"):
    os.sched_setaffinity(int(task), {0})
    libc.syscall(ctypes.c_long(IOPRIO), 1, int(task), 3 << 13)
    os.setpriority(os.PRIO_PROCESS, int(task), 19)
    os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
"""
LOOK = """\
import json, os, sys
print(json.dumps(sorted({
    (os.sched_getscheduler(int(task)), os.getpriority(os.PRIO_PROCESS, int(task)),
     tuple(os.sched_getaffinity(int(task))))
    for task in os.listdir(f"/proc/{sys.argv[1]}/task")
})))
"""
IOPRIO = {"x86_64": 251, "aarch64": 30}


def standing(site: Site) -> Any:
    """Policy, nice value and processors of the agent's threads, each combination once; none where
    it isn't running.
    """
    look = ["python3", "-c", LOOK, str(site.main_pid())]
    done = site.device.run(look, check=False)
    return [] if done.rc else json.loads(done.stdout)


def slow_down(site: Site) -> None:
    """Have a workload change all that the kernel lets it change."""
    code = SLOW.replace("IOPRIO", str(IOPRIO[platform.machine()]))
    site.as_workload("python3", "-c", code, str(site.main_pid()))


@pytest.mark.timeout(300)
def test_slowed_down_by_a_workload_it_is_as_its_unit_says_again(user: Site) -> None:
    """The same user may slow it down; it is undone, and told."""
    before = standing(user)
    assert [row[:2] for row in before] == [[0, 0]]
    slow_down(user)
    eventually(lambda: standing(user) == before, "it is as before, where need be by a new start")
    changed = ["CPUAffinity", "CPUSchedulingPolicy", "IOSchedulingClass", "Nice"]
    if len(before[0][2]) == 1:  # there is one processor only
        changed.remove("CPUAffinity")
    store = user.control.do(user.control.jetstream.key_value("device-info"))

    def told() -> bool:
        value = user.control.do(store.get(f"info.{PI}")).value
        return value is not None and json.loads(value).get("disturbed") == changed

    user.control.resync(PI, 60)
    eventually(told, "device-info names it", 120)


@pytest.mark.timeout(300)
def test_no_workload_gives_the_agent_up_to_the_kernel(user: Site) -> None:
    """When memory is short: its score is root's to write; before it could see to that, it is put
    back.
    """
    pid = user.main_pid()
    place = f"/proc/{pid}/oom_score_adj"
    before = int(user.device.read_text(place))
    said = user.as_workload("sh", "-c", f"echo 1000 > {place}", check=False)
    assert "ermission denied" in said, said
    assert int(user.device.read_text(place)) == before
    eager = "until echo 1000 > /proc/$(systemctl show --value --property=MainPID {0})/oom_score_adj; do :; done"
    line = eager.format(AGENT)
    start = ["systemd-run", "--user", "--quiet", "--unit=eager", "sh", "-c", line]
    user.device.run(start, user=USER)
    user.as_workload("kill", "-KILL", str(pid))
    eventually(lambda: user.main_pid() not in (0, pid), "the agent is started again")
    user.control.resync(PI, 60)
    place = f"/proc/{user.main_pid()}/oom_score_adj"
    eventually(lambda: int(user.device.read_text(place)) <= before, "it is as before")
    user.device.systemctl("stop", "eager.service", user=True, check=False)


@pytest.mark.timeout(300)
def test_a_workload_cannot_end_the_manager_of_all_workloads_for_long(user: Site) -> None:
    """It stays from boot to boot; ended, it is started again, and what runs by Scores with it."""
    device, linger = user.device, f"/var/lib/systemd/linger/{USER}"
    for argv in (["loginctl", "disable-linger"], ["loginctl", "disable-linger", USER]):
        said = user.as_workload(*argv, check=False)
        assert re.search("denied|authentication", said), said
    device.systemctl("mask", "--quiet", "--runtime", "--now", "polkit.service")
    user.as_workload("loginctl", "disable-linger", check=False)
    device.systemctl("unmask", "--quiet", "--runtime", "polkit.service")
    assert device.exists(linger)
    sleeps = "[Service]\nExecStart=/bin/sleep infinity\n"
    user.converge(unit(content=sleeps, state="running"), deployment="web")
    for end in (["systemctl", "--user", "exit"], ["loginctl", "terminate-user", USER]):
        before = user.unit("web.service", "MainPID")
        device.run(end, user=USER, check=False)
        eventually(
            lambda before=before: (  # type: ignore[misc]
                device.systemctl(
                    "show", "--value", "--property=MainPID", "web.service", user=True, check=False
                ).stdout.split()
                not in (before, ["0"], [])
            ),
            "what ran runs again",
            90,
        )
        assert device.exists(linger)
    user.remove("web")


@pytest.mark.timeout(300)
def test_what_a_workload_leaves_in_its_home_reaches_no_further(user: Site) -> None:
    """It can write there, and so what other workloads are given at their next start; the agent
    takes nothing from there.
    """
    device = user.device
    for path, text in (
        (".config/environment.d/evil.conf", "EVIL=1\\n"),
        (".ssh/authorized_keys", "ssh-ed25519 AAAA evil\\n"),
    ):
        user.as_workload("mkdir", "--parents", f"{HOME}/{path.rpartition('/')[0]}")
        user.as_workload("sh", "-c", f"printf '{text}' > {HOME}/{path}")
        assert device.exists(f"{HOME}/{path}")
    device.systemctl("daemon-reload", user=True)
    assert "EVIL=1" in user.as_workload("env")
    device.systemctl("restart", AGENT)
    assert "EVIL" not in device.read_text(f"/proc/{user.main_pid()}/environ")
    assert device.run(["getent", "passwd", USER]).stdout.strip().endswith("/usr/sbin/nologin")
    for path in (".config/environment.d", ".ssh"):
        device.run(["rm", "--recursive", f"{HOME}/{path}"])
    device.systemctl("daemon-reload", user=True)


# -- as the agent itself, were it taken over
# -------------------------------------------------------------------------


def as_the_agent(site: Site) -> set[str]:
    """What the attacks that are run in the agent's own sandbox achieve, but for what is its own
    memory and reading.
    """
    dropin = f"/run/systemd/system/{AGENT}.d/attack.conf"
    site.device.write(
        dropin, f"[Service]\nExecStartPre=-{' '.join(site.argv('agent', 'secrets,places'))}\n"
    )
    site.device.systemctl("daemon-reload")
    site.device.systemctl("restart", AGENT)
    could = done(site.outcome("agent"))
    site.device.remove(dropin)
    site.device.systemctl("daemon-reload")
    assert {
        "secrets: read /etc/harmony/device.creds",
        "secrets: write /var/lib/harmony-agent",
    } <= could
    memory = {name for name in could if "/var/lib/harmony-agent" in name} | {
        "secrets: speak at the agent's socket"
    }
    return {name for name in could - memory if not name.startswith("secrets: read /etc/harmony")}


@pytest.mark.timeout(300)
def test_taken_over_the_agent_can_change_nothing_of_its_own(user: Site) -> None:
    assert as_the_agent(user) == set()


@pytest.mark.timeout(300)
def test_taken_over_in_the_system_profile_it_can_write_units_alone(system: Site) -> None:
    """Which is as much as root, and said to be; but what it may write is bounded, whatever its
    capabilities.
    """
    assert as_the_agent(system) == {"places: write /etc/systemd/system"}


# -- through manifests
# -----------------------------------------------------------------------------------------------

OUTSIDE, CLOSED = ("scores[0].path", "PathOutsideRoots"), ("scores[0].path", "PathForbidden")
RELATED = "[Unit]\nConflicts={0}\n[Service]\nExecStart=/bin/true\n"
ALIAS = "[Service]\nExecStart=/bin/true\n[Install]\nAlias={0}\n"
OWN_UNITS = (
    AGENT,
    "harmony-updater.service",
    "harmony-updater.socket",
    "harmony-updater-apt.service",
    "harmony-.service",
)


def file(path: str, **fields: Any) -> File:
    """A file there."""
    return File.model_validate({"name": "evil", "path": path, **({"content": "x"} | fields)})


def unit(name: str = "web.service", **fields: Any) -> SystemdUnit:
    """A unit of that name."""
    return SystemdUnit.model_validate({"name": name, **fields})


def mount(*sources: str) -> Container:
    """A container that would have them."""
    return container(mounts=binds(*((source, f"/m{n}") for n, source in enumerate(sources))))


def forbidden() -> list[tuple[AnyScore, list[tuple[str, str]]]]:
    """Scores, and what is said of them with `/` as a root: fields and codes."""
    own = (
        "/etc/harmony/agent.toml",
        "/var/lib/harmony-agent/manifests.db",
        "/run/harmony-updater/updater.sock",
    )
    power = (
        f"{UNIT_FOLDER}/ssh.service",
        f"{HOME}/.config/containers/storage.conf",
        f"{HOME}/.ssh/authorized_keys",
        f"{HOME}/.config/environment.d/10-path.conf",
    )
    code = (
        "/etc/systemd/system/harmony-agent.service",
        "/opt/harmony/agent/bin/harmony-agent",
        "/etc/systemd",
        "/etc/polkit-1/rules.d/1.rules",
    )
    sources = (
        "/etc/harmony",
        "/var/lib/harmony-agent",
        "/run/harmony-updater",
        "/run/user",
        "/var/lib",
        HOME,
    )
    found: list[tuple[AnyScore, list[tuple[str, str]]]] = [
        (file(path), [CLOSED]) for path in (*own, *power, *code)
    ]
    found += [(file("/etc/harmony", type="absent", content=None), [CLOSED])]
    found += [
        (file("/srv/x", mode=mode), [("scores[0].mode", "SetuidRefused")])
        for mode in ("4755", "2755", "6755")
    ]
    found += [
        (unit(name, state="stopped"), [("scores[0].name", "UnitForbidden")]) for name in OWN_UNITS
    ]
    found += [
        (unit(name, masked=True), [("scores[0].name", "UnitForbidden")]) for name in OWN_UNITS
    ]
    found += [(unit("ssh.service", state="stopped"), [("scores[0].name", "UnitNotAllowed")])]
    for text, reason in (
        (RELATED.format(AGENT), "UnitForbidden"),
        (ALIAS.format("harmony-updater.socket"), "UnitForbidden"),
        (ALIAS.format("ssh.service"), "UnitNotAllowed"),
    ):
        found += [(unit(content=text, enabled=True), [("scores[0].content", reason)])]
        found += [(unit(dropins={"1.conf": text}), [("scores[0].dropins.1.conf", reason)])]
    found += [
        (mount(source), [("scores[0].mounts[0].source", "MountForbidden")]) for source in sources
    ]
    found += [
        (
            container(env_files=["/etc/harmony/device.creds"]),
            [("scores[0].env_files[0]", "PathForbidden")],
        )
    ]
    return found


def manifests_are_refused(site: Site) -> None:
    """By the roots; and even where these hold all of the device."""
    assert site.rejected(file("/etc/passwd")) == [OUTSIDE]
    assert site.rejected(file("/srv")) == [OUTSIDE]
    assert site.rejected(container(env_files=["/etc/hostname"])) == [
        ("scores[0].env_files[0]", "PathOutsideRoots")
    ]
    site.start(roots=["/etc", "/opt", "/run", "/var", "/srv"])
    said = {
        score.model_dump_json(exclude_unset=True): (site.rejected(score), right)
        for score, right in forbidden()
    }
    site.start()
    assert {score: told for score, (told, right) in said.items() if told != right} == {}


@pytest.mark.timeout(300)
def test_what_no_manifest_may_ask_for(user: Site) -> None:
    manifests_are_refused(user)


@pytest.mark.timeout(300)
def test_what_no_manifest_may_ask_for_in_the_system_profile(system: Site) -> None:
    manifests_are_refused(system)


@pytest.mark.timeout(300)
def test_no_log_of_a_unit_that_is_none_of_a_manifests(user: Site) -> None:
    for resource in (
        "SystemdUnit/ssh.service",
        f"SystemdUnit/{AGENT}",
        "SystemdUnit/*",
        "File/../../etc/harmony",
    ):
        request = json.dumps({"resource": resource}).encode()
        answer = user.control.do(
            user.control.client.request(command_subject(PI, "logs"), request, timeout=30)
        )
        assert json.loads(answer.data)["error"]["code"] == "unknown-resource", resource


# -- links and mounts
# ------------------------------------------------------------------------------------------------

SWAP = """\
import ctypes, os, sys
swap = ctypes.CDLL(None).renameat2
one, other = (path.encode() for path in sys.argv[1:])
while True:
    swap(-100, one, -100, other, 2)
"""
NAIVE = """\
import contextlib, os, sys
while not os.path.exists(sys.argv[2]):
    with contextlib.suppress(OSError), open(sys.argv[1], "w") as file:
        file.write("x")
"""


@pytest.mark.timeout(300)
def test_no_link_leads_out_of_a_root(user: Site) -> None:
    """Of a manifest or a workload: nothing is written, read, mounted or taken away behind it."""
    device, evil = user.device, f"{FOLDER}/links"
    user.as_workload("mkdir", "--parents", evil)
    user.as_workload("ln", "--symbolic", "/etc/harmony", f"{evil}/config")
    user.as_workload("ln", "--symbolic", "/etc/harmony/device.creds", f"{evil}/creds")
    user.as_workload("ln", "--symbolic", UNIT_FOLDER, f"{evil}/units")
    device.run(["ln", "/etc/debian_version", f"{evil}/hard"])
    release = device.read("/etc/debian_version")
    user.put(
        File(name="out", path=f"{evil}/out", type="symlink", target=UNIT_FOLDER),
        file(f"{evil}/out/ssh.service", name="through", after=["File/out"]),
        file(f"{evil}/units/ssh.service", name="by-theirs", parents=True),
        file(f"{evil}/config/device.creds", name="gone", type="absent", content=None),
        file(f"{evil}/creds", name="instead", adopt=True),
        file(f"{evil}/hard", name="hard", mode="0666", adopt=True),
        container(env_files=[f"{evil}/config/device.creds"]),
        container("direct", env_files=[f"{FOLDER}/leak"]),
        container("mounts", mounts=binds((f"{evil}/config", "/m"))),
        deployment="links",
    )
    device.run(["ln", "--symbolic", "/etc/harmony/device.creds", f"{FOLDER}/leak"])
    user.said_of(
        "links",
        {
            "File/through": "SymlinkInPath",
            "File/by-theirs": "SymlinkInPath",
            "File/gone": "SymlinkInPath",
            "File/instead": "",
            "File/hard": "PermissionDenied",
            "Container/box": "EnvFileMissing",
            "Container/direct": "EnvFileMissing",
            "Container/mounts": "MountForbidden",
        },
    )
    assert device.stat(f"{evil}/creds").kind == "regular file"
    assert device.read_text("/etc/harmony/device.creds") == f"{SECRET}\n"
    assert (device.read("/etc/debian_version"), device.stat("/etc/debian_version").mode) == (
        release,
        0o644,
    )
    assert not device.exists(f"{UNIT_FOLDER}/ssh.service")
    assert SECRET not in json.dumps(user.control.raw_status(PI, "links"))
    user.remove("links")


def tried(generation: int, status: DeploymentStatus) -> bool:
    """Whether the agent has got as far as it can with that generation."""
    return status.generation == generation and status.resources["File/evil"].phase in (
        "Ready",
        "Blocked",
        "Degraded",
    )


@pytest.mark.timeout(300)
def test_a_directory_that_is_swapped_for_a_link_all_the_time(user: Site) -> None:
    """Into the one other directory that the agent may write: there a file would be a unit outside
    the list.
    """
    device, evil, stolen = user.device, f"{FOLDER}/race", f"{UNIT_FOLDER}/stolen.service"
    user.as_workload("mkdir", "--parents", evil)
    user.as_workload("ln", "--symbolic", UNIT_FOLDER, f"{FOLDER}/way")
    start = [
        "systemd-run",
        "--user",
        "--quiet",
        "--unit=swap",
        "python3",
        "-c",
        SWAP,
        evil,
        f"{FOLDER}/way",
    ]
    device.run(start, user=USER)
    for turn in range(8):
        generation = user.control.apply(
            PI,
            Manifest(
                deployment="race",
                scores=[file(f"{evil}/stolen.service", content=f"{turn}\n", adopt=True)],
            ),
        )
        user.control.until(PI, "race", partial(tried, generation), 60)
        assert not device.exists(stolen)
    user.as_workload("python3", "-c", NAIVE, f"{evil}/stolen.service", stolen)
    device.systemctl("stop", "swap.service", user=True)
    assert device.exists(stolen), "who follows links is led out"
    device.remove(stolen)
    if device.stat(evil).kind == "symbolic link":
        device.run(["mv", "--no-target-directory", evil, f"{FOLDER}/link"])
        device.run(["mv", "--no-target-directory", f"{FOLDER}/way", evil])
    user.remove("race")


@pytest.mark.timeout(300)
def test_a_mount_in_a_namespace_of_a_workload_is_its_own_alone(user: Site) -> None:
    device, evil = user.device, f"{FOLDER}/mounted"
    user.as_workload("mkdir", "--parents", evil)
    inside = ["unshare", "--map-root-user", "--mount", "--propagation=shared"]
    code = "import os,subprocess,sys,time; subprocess.run(['mount','--bind',*sys.argv[1:]],check=True); " \
           "open(sys.argv[2]+'/mounted.txt','w').close(); time.sleep(600)"  # fmt: skip
    start = [
        "systemd-run",
        "--user",
        "--quiet",
        "--unit=mounts",
        *inside,
        "python3",
        "-c",
        code,
        UNIT_FOLDER,
        evil,
    ]
    device.run(start, user=USER)
    eventually(lambda: device.exists(f"{UNIT_FOLDER}/mounted.txt"), "the workload has its mount")
    user.converge(file(f"{evil}/ssh.service"), deployment="mounted")
    assert device.exists(f"{evil}/ssh.service")
    assert not device.exists(f"{UNIT_FOLDER}/ssh.service")
    device.systemctl("stop", "mounts.service", user=True)
    device.remove(f"{UNIT_FOLDER}/mounted.txt")
    user.remove("mounted")


@pytest.mark.timeout(300)
def test_a_root_that_a_workload_puts_a_link_for(user: Site) -> None:
    """Its own secrets would be below a root, to be read by an env file."""
    device, root = user.device, f"{FOLDER}/root"
    user.as_workload("mkdir", root)
    user.start(roots=["/srv", root])
    user.converge(file(f"{root}/a"), deployment="root")
    user.as_workload("mv", root, f"{root}.away")
    user.as_workload("ln", "--symbolic", "/etc/harmony", root)
    user.put(file(f"{root}/a"), container(env_files=[f"{root}/device.creds"]), deployment="root")
    user.said_of("root", {"File/evil": "SymlinkInPath", "Container/box": "EnvFileMissing"})
    user.as_workload("rm", root)
    user.as_workload("mv", f"{root}.away", root)
    user.remove("root")
    device.remove(root)
    user.start()


# -- the system profile
# ----------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_in_the_system_profile_a_workload_manages_nothing(system: Site) -> None:
    """But to have unit files read anew, where polkit can't tell it from the agent."""
    before = ["systemd-run", "--user", "--pipe", "--wait", "--collect", "--quiet"]
    found = system.attack("workload", ALL, *before, user=USER)
    assert done(found) <= FIXED | {"manager: reload"}, found
    assert unseen(found) <= {"identity: newgrp"}, found


@pytest.mark.timeout(300)
def test_in_the_system_profile_no_workload_swaps_what_is_roots(system: Site) -> None:
    """A script that root runs: neither it nor a directory above it can be put aside, and none of
    them can be there before it.
    """
    device = system.device
    script = File(
        name="script",
        path="/srv/tools/bin/run.sh",
        parents=True,
        content="#!/bin/sh\n",
        owner="root",
        group="root",
        mode="0755",
    )
    system.converge(script, deployment="tools")
    moves = [
        ("mv", "/srv/tools", "/srv/away"),
        ("mv", "/srv/tools/bin", "/srv/tools/away"),
        ("mv", "/srv/tools/bin/run.sh", "/srv/tools/bin/away"),
        ("cp", "/bin/true", "/srv/tools/bin/run.sh"),
        ("mkdir", "/srv/first"),
    ]
    for move in moves:
        said = system.as_workload(*move, check=False)
        assert "Permission denied" in said, (move, said)
    system.as_workload("cp", "/bin/true", f"{FOLDER}/true")  # it runs, and may write what is its
    for path in ("/srv", "/srv/tools", "/srv/tools/bin", "/srv/tools/bin/run.sh"):
        assert (device.stat(path).owner, device.stat(path).group) == ("root", "root"), path
        assert not device.stat(path).mode & 0o022, path
    system.remove("tools")
    assert not device.exists("/srv/tools")


@pytest.mark.timeout(300)
def test_root_would_succeed_in_all_of_it(user: Site) -> None:
    """So that each refusal is one: last, for it restarts things."""
    found = user.attack("root", ALL)
    refused = {name for name, outcome in found.items() if outcome.startswith("refused")}
    # The updater's operations are fixed for root as well; newgidmap asks who is in its table, and a
    # container has no CAP_SYS_RESOURCE.
    fixed = {name for name in found if name.startswith("updater: ")} - {
        "updater: its journals by the socket's folder"
    }
    others = {
        "identity: map the group",
        "identity: map a subordinate group",
        "process: change its limits",
    }
    assert refused == (fixed | others) - {"updater: capabilities"}, found
