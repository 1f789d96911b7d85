"""What a container may have of the device's hardware and guards, on rootless podman: each field set,
changed, not drifted, removed; nodes that come and go; what only the device's own configuration allows.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harmony_agent.adapters.podman.client import Podman
from harmony_agent.kinds.container.payload import payload
from scores import Manifest
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.pods import CONFIG, PI, Site, container, make, unmake
from tests.device.prepare import BUSYBOX, USER
from tests.scale import scaled

STICK = "/dev/serial/by-id/usb-stick"
SERIAL = {"source": STICK, "target": "/dev/ttyUSB0", "access": "rw"}
SLOW = {**CONFIG, "intervals": {"heartbeat": 1, "relist": 300, "poll": 1}}
"""A relist so seldom that only an event can have told the agent."""
CYCLES = scaled(20, 100)
ENGINE = "/etc/containers/containers.conf"


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    made = make(lab, request.param, config=SLOW)
    yield made
    unmake(made)


@pytest.fixture(autouse=True)
def nothing_left(site: Site) -> Iterator[None]:
    """Each test's deployment goes, and with it every container of ours."""
    yield
    status = site.control.status(PI, "web")
    if status is not None and status.phase != "Removed":
        site.remove()
    assert site.ours() == []
    unplug(site)


def plug(site: Site, number: int = 5, mode: str = "666", group: str = "root") -> None:
    """A serial adapter, as udev shows it: the node, then its link. Its number tells it from others:
    1:5 reads zeros, 1:3 nothing.
    """
    node = f"/dev/ttyUSB{number}"
    site.device.run(["mknod", "-m", mode, node, "c", "1", str(number)])
    site.device.run(["chgrp", group, node])
    site.device.run(["mkdir", "-p", "/dev/serial/by-id"])
    site.device.run(["ln", "-s", f"../../ttyUSB{number}", STICK])


def unplug(site: Site) -> None:
    """It goes, and udev takes away the directories of the link."""
    site.device.run(["sh", "-c", "rm -rf /dev/serial /dev/ttyUSB*"])


def within(site: Site, *command: str) -> str:
    """The output of a command in the container, with one space between words."""
    return " ".join(site.device.podman("exec", "web", *command, check=False).stdout.split())


def reads(site: Site) -> str:
    """How many bytes of four the container reads from its adapter."""
    return within(site, "sh", "-c", "head -c 4 /dev/ttyUSB0 | wc -c")


def state(site: Site, reason: str) -> dict[str, Any]:
    """Wait until the container is blocked for this reason."""
    found = site.said("Container/web", "Blocked", reason)
    assert STICK in found["message"]
    return found


def ready(site: Site) -> None:
    """A runtime that was lacking is asked for again after a minute."""
    site.until("Container/web", lambda found: found["phase"] == "Ready", timeout=90)


def test_a_stick_that_comes_goes_and_comes_back_under_another_number(site: Site) -> None:
    site.put(container(devices=[SERIAL]))
    state(site, "DeviceMissing")
    assert site.ours() == []
    plug(site, 5)
    ready(site)
    assert reads(site) == "4"
    first = site.run_of()
    site.device.agent.restart()
    site.control.resync(PI)
    ready(site)
    assert site.run_of() == first
    unplug(site)
    state(site, "DeviceMissing")
    assert site.run_of() == first
    plug(site, 3)
    ready(site)
    assert reads(site) == "0"
    second = site.run_of()
    assert second[0] != first[0]
    unplug(site)
    state(site, "DeviceMissing")
    plug(site, 3)
    ready(site)
    third = site.run_of()
    assert (third[0], third[1] != second[1]) == (second[0], True)
    unplug(site)
    state(site, "DeviceMissing")
    site.device.podman("kill", "web")
    assert site.inspect()["State"]["Running"] is False
    plug(site, 3)
    ready(site)
    status = site.control.status(PI, "web")
    assert status is not None
    found = status.wire()["resources"]["Container/web"]
    assert (found["drift"], found["status"]["restarts"]) == (None, 0)


def test_many_plugs_leave_nothing_behind(site: Site) -> None:
    plug(site, 5)
    site.converge(container(devices=[SERIAL]))
    held = descriptors(site)
    took = []
    for cycle in range(CYCLES):
        unplug(site)
        state(site, "DeviceMissing")
        plug(site, 5 if cycle % 20 >= 10 else 3)
        began = time.monotonic()
        ready(site)
        took.append(time.monotonic() - began)
    print(f"taken up after {statistics.median(took):.2f} s, at most {max(took):.2f} s")
    assert statistics.median(took) < 2, "no look of its own is due for minutes: events tell it"
    assert reads(site) == "4"
    assert site.ours() == ["web"]
    assert site.device.podman("ps", "--all", "--external", "--quiet").stdout.count("\n") == 1
    opened, watches = descriptors(site)
    assert watches == held[1]
    assert opened < held[0] + 10, "a few are of calls that are under way"


def descriptors(site: Site) -> tuple[int, int]:
    """How many descriptors the agent holds, and how many directories it watches."""
    pid = site.device.agent.pid
    listed = site.device.run(["sh", "-c", f"ls /proc/{pid}/fd; cat /proc/{pid}/fdinfo/*"]).stdout
    lines = listed.splitlines()
    watches = sum(line.startswith("inotify wd:") for line in lines)
    return sum(line.isdecimal() for line in lines), watches


def test_a_node_that_the_agents_user_may_not_open(site: Site) -> None:
    """As between the kernel's making of a node and udev's rule for it."""
    plug(site, 5, "660", "dialout")
    site.put(container(devices=[SERIAL]))
    found = state(site, "DeviceForbidden")
    assert "dialout" in found["message"]
    site.device.run(["chown", USER, "/dev/ttyUSB5"])
    ready(site)
    assert reads(site) == "4"


def test_groups_are_kept_by_crun_and_by_no_other_runtime(site: Site) -> None:
    plug(site, 5, "660", "dialout")
    device, spec = site.device, container(devices=[SERIAL], groups=["keep-groups"])
    engine = device.read_text(ENGINE)
    device.run(["usermod", "--append", "--groups", "dialout", USER])
    device.systemctl("restart", "user@1000.service")
    device.agent.restart()
    try:
        site.put(spec)
        found = site.said("Container/web", "Blocked", "KeepGroupsUnsupported")
        assert "runc" in found["message"]
        device.write(ENGINE, engine.replace('"runc"', '"crun"'))
        device.systemctl("restart", "podman.service", user=True)
        device.agent.restart()
        ready(site)
        assert reads(site) == "4"
        before = site.run_of()
        device.agent.restart()
        site.control.resync(PI)
        ready(site)
        assert site.run_of() == before
        site.remove()
    finally:
        device.write(ENGINE, engine)
        device.run(["gpasswd", "--delete", USER, "dialout"])
        device.systemctl("restart", "user@1000.service")
        device.agent.restart()


HARDWARE: dict[str, Any] = {
    "devices": [SERIAL],
    "init": True,
    "tty": True,
    "security_opt": {"seccomp": "unconfined", "mask": ["/proc/uptime"], "unmask": ["/proc/kcore"]},
    "log_driver": "k8s-file",
    "log_size": "64Ki",
    "restart": "on-failure",
    "restart_tries": 2,
}
LOOK = (
    "head -c 4 /dev/ttyUSB0 | wc -c; cat /proc/1/comm; wc -c < /proc/uptime;"
    "grep Seccomp: /proc/self/status"
)


def found(site: Site) -> dict[str, Any]:
    """The fields as podman and a process inside show them."""
    shown = site.inspect()
    host = shown["HostConfig"]
    return {
        "inside": within(site, "sh", "-c", LOOK),
        "tty": shown["Config"]["Tty"],
        "driver": host["LogConfig"]["Type"],
        "size": host["LogConfig"]["Size"],
    }


def test_each_field_is_set_changed_kept_and_removed(site: Site) -> None:
    plug(site, 5)
    talk = ["/bin/sh", "-c", "while sleep 0.01; do head -c 999 /dev/zero | tr '\\0' x; echo; done"]
    site.converge(container("web", *talk, **HARDWARE))
    got = found(site)
    assert got["inside"] == "4 podman-init 0 Seccomp: 0"
    assert (got["tty"], got["driver"], got["size"]) == (True, "k8s-file", "65.54kB")
    before = site.run_of()
    site.device.agent.restart()
    site.control.resync(PI)
    ready(site)
    assert site.run_of() == before, "podman may spell a value in its own way: that is no drift"
    log = site.inspect()["HostConfig"]["LogConfig"]["Path"]
    for _ in range(50):
        size = int(site.device.run(["stat", "--format=%s", log]).stdout)
        assert size <= 2 * 65536
    changes = {"init": False, "log_driver": "none", "security_opt": {"mask": ["/proc/version"]}}
    kept = {key: HARDWARE[key] for key in HARDWARE if key not in ("log_size", *changes)}
    site.converge(container("web", *talk, **kept, **changes))
    got = found(site)
    assert "podman-init" not in got["inside"]
    assert got["inside"].endswith("Seccomp: 2")
    assert got["driver"] == "none"
    site.converge(container())
    got = found(site)
    assert got["inside"].startswith("0 ")
    assert (got["tty"], got["driver"]) == (False, "journald")


def ids(site: Site, name: str) -> set[int]:
    """The ids that a container has of its podman's."""
    shown = site.device.podman("exec", name, "cat", "/proc/self/uid_map").stdout
    lines = [list(map(int, line.split())) for line in shown.splitlines()]
    return {one for _, start, count in lines for one in range(start, start + count)}


def test_ids_of_its_own_are_set_changed_kept_and_removed(site: Site) -> None:
    site.converge(container(userns="auto:size=2000"), container("other", userns="auto"))
    assert len(ids(site, "web")) == 2000
    assert ids(site, "web").isdisjoint(ids(site, "other"))
    before = site.run_of()
    site.device.agent.restart()
    site.control.resync(PI)
    ready(site)
    assert site.run_of() == before, "podman may spell a value in its own way: that is no drift"
    site.converge(container(userns="auto:size=3000"))
    assert len(ids(site, "web")) == 3000
    site.converge(container())
    assert len(ids(site, "web")) == 65537
    lines = site.device.read_text("/etc/subuid")
    site.device.write("/etc/subuid", lines.replace(":65536", ":1000"))
    site.device.agent.restart()
    site.put(container(userns="auto"))
    status = site.control.until(PI, "web", lambda status: status.rejected is not None, 20)
    assert status.rejected is not None
    (error,) = status.rejected.errors
    assert (error.field, error.code) == ("scores[0].userns", "SubordinateIdsMissing")
    assert f"{USER}:" in status.message
    site.device.write("/etc/subuid", lines)
    site.device.agent.restart()


def test_tries_end_and_another_spec_begins_anew(site: Site) -> None:
    fails = container("web", "/bin/false", restart_tries=1)
    site.put(fails)
    said = site.said("Container/web", "Failed", "TriesSpent", timeout=60)
    assert said["status"]["restarts"] == 1
    site.device.agent.restart()
    site.control.resync(PI)
    site.said("Container/web", "Failed", "TriesSpent")
    site.converge(container(restart_tries=1))


def test_rights_beyond_its_own_are_the_devices_to_allow(site: Site) -> None:
    fields: dict[str, Any] = {"privileged": True, "host_pid": True, "host_ipc": True}
    refused = {f"scores[0].{field}" for field in fields}
    site.put(container(**fields))
    status = site.control.until(PI, "web", lambda status: status.rejected is not None, 20)
    assert status.rejected is not None
    assert {error.field for error in status.rejected.errors} == refused
    assert '[podman] allow = ["host-pid"]' in status.message
    allow = {"podman": {"allow": ["privileged", "host-pid", "host-ipc"]}}
    site.device.agent.configure({**SLOW, **allow})
    site.device.agent.restart()
    site.converge(container(**fields))
    config = site.inspect()["HostConfig"]
    assert (config["Privileged"], config["PidMode"]) == (True, "host")
    ipc = ["readlink", "/proc/self/ns/ipc"]  # podman 4.3 shows another IpcMode than was asked for
    assert within(site, *ipc) == site.device.run(ipc).stdout.strip()
    assert int(within(site, "sh", "-c", "ps | grep -c systemd")) > 1
    before = site.run_of()
    site.device.agent.restart()
    site.control.resync(PI)
    ready(site)
    assert site.run_of() == before
    site.converge(container())
    config = site.inspect()["HostConfig"]
    assert config["Privileged"] is False
    assert config["PidMode"] != "host"
    site.device.agent.configure(SLOW)
    site.device.agent.restart()


def test_rootless_podman_has_no_device_rules(site: Site) -> None:
    """Podman 4.3 takes them and drops them."""
    site.control.apply(
        PI,
        Manifest(deployment="web", scores=[container(device_cgroup_rules=["c 189:* rwm"])]),
    )
    status = site.control.until(PI, "web", lambda status: status.rejected is not None, 20)
    assert status.rejected is not None
    (error,) = status.rejected.errors
    assert (error.field, error.code) == ("scores[0].device_cgroup_rules", "RootlessUnsupported")


async def test_rootful_podman_allows_nodes_by_number(site: Site) -> None:
    """Also one that was made after the container; 10:229 is no node that every container has."""
    site.device.systemctl("start", "podman.socket")
    leader = site.device._nspawn.leader
    podman = Podman(f"/proc/{leader}/root/run/podman/podman.sock")
    look = ["sh", "-c", "mknod /tmp/fuse c 10 229 && : < /tmp/fuse"]
    image = await podman.image(BUSYBOX)
    assert image is not None
    for rules, code in ((["c 10:229 rwm"], 0), (["c 10:* r"], 0), ([], 1)):
        spec = container(device_cgroup_rules=rules, cap_add=["MKNOD"], network="none")
        ident = await podman.create(payload(spec, {}, image, {}))
        await podman.start(ident)
        assert await podman.exec(ident, look, 30) == code
        await podman.remove(ident)
