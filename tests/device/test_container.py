"""Container through the whole agent on rootless podman: each field set, changed, drifted, removed;
faults 9, 12-18.
"""

from __future__ import annotations

import json
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.kinds.container.payload import SPEC
from scores import Container, File, Manifest
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import eventually
from tests.device.pods import PI, SERVE, SLEEP, Site, container, make, unmake
from tests.device.prepare import BUSYBOX, USER
from tests.device.signals import send, signal_podman

RECORDED = Path(__file__).parents[1] / "recorded" / "digests.jsonl"
LEDGER = "/var/lib/harmony-agent/ledger.db"
PASSWORD = "hunter2-correct-horse"


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    made = make(lab, request.param)
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
    site.device.podman("rm", "--all", "--force", "--time=0")


EVERYTHING: dict[str, Any] = {
    "command": SERVE[:2],
    "args": SERVE[2:],
    "env": {"A": "1", "B": "two words"},
    "ports": [{"host_port": 18080, "container_port": 8080, "host_ip": "127.0.0.1"}],
    "mounts": [
        {"type": "bind", "source": "/srv/www", "target": "/srv", "read_only": True},
        {"type": "volume", "source": "data", "target": "/data"},
        {"type": "tmpfs", "target": "/scratch", "size": "1Mi"},
    ],
    "user": "1:1",
    "working_dir": "/srv",
    "hostname": "inside",
    "labels": {"team": "x"},
    "restart": "on-failure",
    "stop_signal": "SIGUSR1",
    "cap_add": ["NET_RAW"],
    "cap_drop": ["CHOWN"],
    "read_only": True,
    "no_new_privileges": True,
    "healthcheck": {"command": ["/bin/true"], "interval_seconds": 1},
    "readiness": {"http": {"port": 18080, "path": "/page"}, "period_seconds": 0.2},
    "liveness": {"exec": ["/bin/true"], "period_seconds": 0.5, "timeout_seconds": 5},
}
LIMITS = {"state": "stopped", "memory": "64Mi", "cpus": 0.5, "pids": 50}


def shown(site: Site, name: str = "web") -> dict[str, Any]:
    """A container's settings as podman shows them, by the Score's field names."""
    found = site.inspect(name)
    config, host = found["Config"], found["HostConfig"]
    entrypoint = config["Entrypoint"]
    return {
        "command": entrypoint.split() if isinstance(entrypoint, str) else entrypoint,
        "args": config["Cmd"] or [],
        "env": {
            key: value
            for key, _, value in (entry.partition("=") for entry in config["Env"])
            if key in ("A", "B")
        },
        "ports": host["PortBindings"],
        "mounts": {
            (mount["Type"], mount["Destination"]): (
                mount.get("Name") or mount["Source"],
                mount["RW"],
            )
            for mount in found["Mounts"]
        },
        "tmpfs": host["Tmpfs"],
        "user": config["User"],
        "working_dir": config["WorkingDir"],
        "hostname": config["Hostname"],
        "team": config["Labels"].get("team"),
        "stop_signal": str(config["StopSignal"]).removeprefix("SIG"),
        "caps": sorted(found["BoundingCaps"] or []),
        "read_only": host["ReadonlyRootfs"],
        "no_new_privileges": "no-new-privileges" in " ".join(host["SecurityOpt"]),
        "healthcheck": (config.get("Healthcheck") or {}).get("Test"),
        "network": host["NetworkMode"],
        "memory": host["Memory"],
        "cpus": host["NanoCpus"],
        "pids": host["PidsLimit"],
    }


def test_every_field_is_set_changed_and_removed(site: Site) -> None:
    page = File(name="page", path="/srv/www/page", content="hello\n", parents=True)
    plain = Container(
        name="plain", image=BUSYBOX, command=SLEEP, stop_grace_seconds=0, network="none"
    )
    limits = container("limits", **LIMITS)
    full = container(**EVERYTHING, after=["File/page"])
    resources = site.converge(page, full, limits, plain)
    got, bare = shown(site), shown(site, "plain")
    assert (got["command"], got["args"], got["env"]) == (
        SERVE[:2],
        SERVE[2:],
        {"A": "1", "B": "two words"},
    )
    assert got["ports"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": "18080"}]}
    assert got["mounts"][("bind", "/srv")] == ("/srv/www", False)
    assert got["mounts"][("volume", "/data")] == ("data", True)
    assert "size=1048576" in got["tmpfs"]["/scratch"]
    assert (got["user"], got["working_dir"], got["hostname"], got["team"]) == (
        "1:1",
        "/srv",
        "inside",
        "x",
    )
    assert got["stop_signal"] in ("10", "USR1")
    assert "CAP_NET_RAW" in got["caps"]
    assert "CAP_CHOWN" not in got["caps"]
    assert "CAP_CHOWN" in bare["caps"]
    assert (got["read_only"], got["no_new_privileges"]) == (True, True)
    assert (bare["read_only"], bare["no_new_privileges"], bare["network"]) == (False, False, "none")
    assert got["healthcheck"] == ["CMD", "/bin/true"]
    held = shown(site, "limits")
    assert (held["memory"], held["cpus"], held["pids"]) == (67108864, 500000000, 50)
    detail = resources["Container/web"]["status"]
    assert (detail["state"], detail["ready"], detail["id"], detail["restarts"]) == (
        "Running",
        True,
        site.run_of()[0],
        0,
    )
    assert detail["image_digest"].startswith("sha256:")
    assert detail["since"].endswith("Z")
    assert resources["Container/limits"]["status"]["state"] == "Created"
    before = {name: site.run_of(name) for name in ("web", "limits", "plain")}
    site.settle()
    assert {name: site.run_of(name) for name in before} == before
    changes: dict[str, Any] = {
        "args": ["-p", "8080", "-h", "/srv", "-v"],
        "env": {"A": "2"},
        "ports": [{"host_port": 18081, "container_port": 8080}],
        "mounts": [{"type": "bind", "source": "/srv/www", "target": "/srv"}],
        "user": "2",
        "working_dir": "/tmp",
        "hostname": "other",
        "labels": {"team": "y"},
        "stop_signal": "SIGTERM",
        "cap_add": [],
        "cap_drop": ["ALL"],
        "read_only": False,
        "no_new_privileges": False,
        "healthcheck": {"command": ["/bin/echo"], "interval_seconds": 1},
        "readiness": {"http": {"port": 18081, "path": "/page"}, "period_seconds": 0.2},
    }
    site.converge(
        page,
        container(**{**EVERYTHING, **changes}, after=["File/page"]),
        container("limits", **{**LIMITS, "memory": "32Mi", "cpus": 1, "pids": 40}),
        Container(name="plain", image=BUSYBOX, command=SLEEP, stop_grace_seconds=0, network="host"),
    )
    new = shown(site)
    assert (new["args"], new["env"]) == (changes["args"], {"A": "2"})
    assert new["ports"]["8080/tcp"][0]["HostPort"] == "18081"
    assert set(new["mounts"]) == {("bind", "/srv")}
    assert new["mounts"][("bind", "/srv")][1] is True
    assert not new["tmpfs"]
    assert (new["user"], new["working_dir"], new["hostname"], new["team"]) == (
        "2",
        "/tmp",
        "other",
        "y",
    )
    assert new["stop_signal"] in ("15", "TERM")
    assert new["caps"] == []
    assert (new["read_only"], new["no_new_privileges"]) == (False, False)
    assert new["healthcheck"] == ["CMD", "/bin/echo"]
    held = shown(site, "limits")
    assert (held["memory"], held["cpus"], held["pids"]) == (33554432, 1000000000, 40)
    assert shown(site, "plain")["network"] == "host"
    site.remove()
    assert site.device.podman("ps", "--all", "--quiet").stdout == ""
    assert site.device.podman("volume", "ls", "--quiet").stdout.split() == ["data"]


def test_fields_that_need_no_new_container_keep_it(site: Site) -> None:
    """Known fault 12 too: the label that decides covers only what was set."""
    site.converge(container())
    before = site.run_of()
    for fields in (
        {"restart": "never"},
        {"stop_grace_seconds": 1},
        {"pull": "never"},
        {"readiness": {"exec": ["/bin/true"], "timeout_seconds": 5}},
        {"drift": "report"},
        {"on_remove": "orphan"},
        {},
    ):
        site.converge(container(**fields))
        assert site.run_of() == before
    site.converge(container(state="stopped"))
    assert site.inspect()["State"]["Running"] is False
    site.converge(container())
    assert site.run_of()[0] == before[0]


def taken_away(site: Site) -> None:
    """Remove it in one step, as the agent sees it: podman kills first, and what was killed may run
    again by then.
    """
    agent = [str(site.device.agent.pid)]
    send(site.device, signal.SIGSTOP, agent)
    try:
        site.device.podman("rm", "--force", "--time=0", "web")
    finally:
        send(site.device, signal.SIGCONT, agent)


def test_every_drift_is_repaired_and_told(site: Site) -> None:
    site.converge(container(network="host"))
    podman = site.device.podman
    first = site.run_of()[0]
    steps: list[tuple[str, Callable[[], Any], bool]] = [
        ("state", lambda: podman("pause", "web"), True),
        ("name", lambda: podman("rename", "web", "elsewhere"), True),
        ("name", lambda: taken_away(site), False),
    ]
    for count, (field, break_it, kept) in enumerate(steps, 1):
        break_it()
        drift = site.repaired("Container/web", count)
        assert field in drift["fields"]
        assert drift["action"] == "repaired"
        assert site.inspect()["State"]["Status"] == "running"
        assert (site.run_of()[0] == first) is kept
    site.converge(container(state="stopped"))
    podman("start", "web")
    site.until("Container/web", lambda found: found["status"]["state"] == "Exited")


def test_what_ends_is_started_again_and_counted(site: Site) -> None:
    site.converge(container())
    ident = site.run_of()[0]
    site.device.podman("kill", "web")
    found = site.until(
        "Container/web",
        lambda found: found["phase"] == "Ready" and found["status"]["restarts"] == 1,
    )
    assert (found["status"]["exit_code"], site.run_of()[0]) == (137, ident)
    site.device.podman(
        "kill", "web"
    )  # not stop, which cleans up after itself what may run again by then
    site.said("Container/web", "Degraded", "CrashLoop")


def test_drift_is_only_told_where_that_is_wanted(site: Site) -> None:
    site.converge(container(drift="report"))
    for how in (("stop", "--time=0"), ("kill",)):
        site.device.podman(*how, "web")
        found = site.said("Container/web", "Degraded", "DriftReported")
        assert (found["drift"]["fields"], found["status"]["state"]) == (["state"], "Exited")
        site.settle()
        agent = site.device.agent
        agent.await_new_pid(agent.kill())
        site.settle()
        assert site.inspect()["State"]["Running"] is False
        site.device.podman("start", "web")
        site.until("Container/web", lambda found: found["phase"] == "Ready")
    run = site.run_of()
    site.device.run(["kill", "-9", str(site.inspect()["State"]["Pid"])])  # it ends by itself
    site.until(
        "Container/web",
        lambda found: found["phase"] == "Ready" and found["status"]["restarts"] == 1,
    )
    assert site.run_of() != run
    taken_away(site)
    found = site.until("Container/web", lambda found: flat(found)["state"] == "Absent")
    assert found["drift"]["action"] == "reported"
    assert site.ours() == []


def test_one_shots(site: Site) -> None:
    """Known fault 17."""
    shots = (
        container("done", "/bin/true", restart="never"),
        container("well", "/bin/true", restart="on-failure"),
        File(
            name="next", path="/srv/next", content="x", after=["Container/done", "Container/well"]
        ),
    )
    site.converge(*shots)
    for name in ("done", "well"):  # Ready for as long as they run
        found = site.until(f"Container/{name}", lambda found: found["phase"] == "Completed")
        assert found["status"]["exit_code"] == 0
    before = [site.run_of(name) for name in ("done", "well")]
    site.device.agent.restart()
    site.settle()
    assert [site.run_of(name) for name in ("done", "well")] == before
    site.device.podman("container", "prune", "--force")
    site.device.agent.restart()
    site.settle()
    for name in ("done", "well"):
        found = site.until(f"Container/{name}", lambda one: flat(one).get("state") == "Absent")
        assert (found["phase"], found["status"]["exit_code"]) == ("Completed", 0)
    assert site.ours() == []
    site.put(*shots, container("bad", "/bin/false", restart="never"))
    found = site.said("Container/bad", "Failed", "ExitedNonZero")
    assert found["status"]["exit_code"] == 1
    site.put(*shots, container("bad", "/bin/false", restart="on-failure"))
    site.said("Container/bad", "Degraded", "CrashLoop")


def flat(found: dict[str, Any]) -> dict[str, Any]:
    """A resource's status with its detail in it."""
    return {**found, **(found["status"] or {})}


def test_a_command_that_does_not_exist(site: Site) -> None:
    """Known fault 13."""
    site.put(container("nope", "/bin/nope"), container())
    found = site.said("Container/nope", "Degraded", "StartFailed")
    assert "/bin/nope" in found["message"]
    assert site.until("Container/web", lambda found: found["phase"] == "Ready")
    site.remove()
    assert site.device.podman("ps", "--all", "--quiet").stdout == ""


def test_a_limit_without_its_cgroup_controller_is_blocked_and_told(site: Site) -> None:
    """As on Raspberry Pi OS: the kernel's controllers are switched off on such a device. What runs
    goes on.
    """
    site.converge(container())
    before = site.run_of()
    site.put(container(memory="64Mi"))
    found = site.until("Container/web", lambda found: found["phase"] == "Blocked")
    assert found["reason"] == "ControllerMissing"
    assert "cgroup_enable=memory cgroup_memory=1" in found["message"]
    assert site.run_of() == before
    said = site.device.agent.command("check", check=False).stdout
    (line,) = [line for line in said.splitlines() if line.startswith("note")]
    assert "cgroup controllers: " in line
    assert "memory" in line
    assert "cgroup_enable=memory cgroup_memory=1" in line
    store = site.control.do(site.control.jetstream.key_value("device-info"))
    value = site.control.do(store.get(f"info.{PI}")).value
    assert value is not None
    assert "memory" in json.loads(value)["missing_controllers"]
    site.converge(container())
    assert site.run_of() == before


def test_images(site: Site) -> None:
    site.converge(container())
    before = site.run_of()
    site.put(
        container(image="127.0.0.1:9/nope:1"),
        container("never", image="localhost/nope:1", pull="never"),
    )
    found = site.said("Container/web", "Degraded", "PullFailed")
    assert "127.0.0.1:9/nope:1" in found["message"]
    assert site.said("Container/never", "Blocked", "ImageMissing")
    assert site.run_of() == before
    site.device.podman("tag", BUSYBOX, "localhost/moves:1")
    site.converge(container(image="localhost/moves:1", pull="never"))
    before = site.run_of()
    site.device.podman("commit", "--quiet", "web", "localhost/moves:1")
    site.until("Container/web", lambda found: found["reason"] == "ImageMoved")
    assert site.run_of() == before
    site.remove()
    site.device.podman("rmi", "localhost/moves:1")


def test_an_update_that_cannot_be_made_leaves_what_runs(site: Site) -> None:
    podman = site.device.podman
    podman("run", "--detach", "--stop-timeout=0", "--publish=18090:80", "--name=b", BUSYBOX, *SLEEP)
    held = {"host_port": 18080, "container_port": 80}
    site.converge(container(ports=[held]))
    before = site.run_of()
    missing = {"type": "bind", "source": "/srv/missing", "target": "/x"}
    for fields, reason, words in (
        ({"command": ["/bin/nope"]}, "StartFailed", "/bin/nope"),
        ({"user": "nobody-here"}, "StartFailed", "nobody-here"),
        ({"network": "nowhere"}, "CreateFailed", "nowhere"),
        ({"mounts": [missing]}, "CreateFailed", "/srv/missing"),
        ({"ports": [held, {"host_port": 18090, "container_port": 1}]}, "StartFailed", "18090"),
        ({"image": "localhost/nope:1", "pull": "never"}, "ImageMissing", "localhost/nope:1"),
    ):
        site.put(container(**{"ports": [held], **fields}))

        def told(found: dict[str, Any], reason: str = reason, words: str = words) -> bool:
            return found["reason"] == reason and words in found["message"]

        site.until("Container/web", told)
        assert site.run_of() == before
    ends_badly = {"name": "bad", "command": ["/bin/false"]}
    site.put(container(ports=[held], init_containers=[ends_badly]))
    site.said("Container/web", "Degraded", "InitFailed")
    site.control.until(PI, "web", lambda _: site.inspect()["State"]["Running"])
    assert site.run_of()[0] == before[0], "it was stopped for the init container, and came back"
    site.converge(container(ports=[held]))
    assert site.run_of()[0] == before[0]
    site.converge(container(ports=[held], hostname="good"))
    assert site.ours() == ["web"]
    assert site.run_of()[0] != before[0]


def test_what_is_not_ours_is_left_alone_or_adopted_and_put_back(site: Site) -> None:
    podman = site.device.podman
    podman("run", "--detach", "--stop-timeout=0", "--name=web", BUSYBOX, *SLEEP)
    theirs = site.run_of()
    site.put(container())
    site.said("Container/web", "Blocked", "OwnershipConflict")
    assert site.run_of() == theirs
    site.converge(container(adopt=True))
    former = f"web.former-{theirs[0][:12]}"
    assert site.inspect(former)["State"]["Running"] is False
    assert site.run_of()[0] != theirs[0]
    site.remove()
    assert site.run_of()[0] == theirs[0]
    assert site.inspect()["State"]["Running"] is True
    podman("rm", "--force", "--time=0", "web")


def test_an_orphan_stays_and_is_taken_back(site: Site) -> None:
    site.converge(container(on_remove="orphan"))
    before = site.run_of()
    site.control.remove(PI, "web")
    assert site.run_of() == before
    site.converge(container())
    assert site.run_of() == before


def test_an_orphan_with_data_outlives_every_deployment_that_adopts_it(site: Site) -> None:
    site.converge(container(on_remove="orphan"))
    site.device.podman("exec", "web", "touch", "/data-of-somebody")
    before = site.run_of()
    site.control.remove(PI, "web")
    other = Manifest(deployment="other", scores=[container(adopt=True)])
    site.control.converge(PI, other)
    assert site.run_of() == before, "handed over as it is: same id, same process"
    site.control.remove(PI, "other")
    assert site.run_of() == before
    for adopter, seconds in (("web", 0.0), ("other", 0.1), ("web", 0.3)):
        site.converge(container(adopt=True, hostname="changed"), deployment=adopter)
        assert site.run_of()[0] != before[0]
        site.control.apply(PI, Manifest(deployment=adopter, removed=True))
        time.sleep(seconds)
        site.device.agent.kill()
        site.control.wait(PI, adopter, phase="Removed")
        assert site.run_of()[0] == before[0]
        site.device.podman("exec", "web", "ls", "/data-of-somebody")
    site.device.podman("rm", "--force", "--time=0", "web")


def test_init_containers_run_first(site: Site) -> None:
    mounts = [{"type": "volume", "source": "work", "target": "/work"}]
    inits = [
        {
            "name": "one",
            "command": ["/bin/sh", "-c", "echo $P > /work/log"],
            "env": {"P": PASSWORD},
        },
        {"name": "two", "command": ["/bin/sh", "-c", "echo two >> /work/log"]},
    ]
    site.converge(container(mounts=mounts, init_containers=inits))
    assert site.device.podman("exec", "web", "cat", "/work/log").stdout == f"{PASSWORD}\ntwo\n"
    assert site.ours() == ["web"]
    site.put(
        container(
            mounts=mounts, init_containers=[{"name": "bad", "command": ["/bin/sh", "-c", "exit 3"]}]
        )
    )
    found = site.said("Container/web", "Degraded", "InitFailed")
    assert "exited with 3" in found["message"]
    site.remove()
    site.device.podman("volume", "rm", "work")


def test_env_files_and_restart_on(site: Site) -> None:
    env = File(name="env", path="/srv/env", content="P=1\n", mode="0600")
    other = File(name="other", path="/srv/other", content="1")
    site.put(container(env_files=["/srv/missing"]))
    site.said("Container/web", "Blocked", "EnvFileMissing")
    spec = container(env_files=["/srv/env"], after=["File/env"], restart_on=["File/other"])
    site.converge(env, other, spec)
    assert value(site) == "1\n"
    first = site.run_of()
    site.converge(env, File(name="other", path="/srv/other", content="2"), spec)
    second = site.run_of()
    assert second[0] == first[0]
    assert second[1] != first[1]
    site.settle()
    assert site.run_of() == second
    site.device.write("/srv/other", "edited", owner=USER)
    site.control.until(PI, "web", lambda _: site.run_of()[1] != second[1])
    assert site.device.read_text("/srv/other") == "2"
    third = site.run_of()
    site.settle()
    assert (third[0], site.run_of()) == (first[0], third)
    site.device.write("/srv/env", "P=2\n", owner=USER)
    site.converge(File(name="env", path="/srv/env", content="P=2\n", mode="0600"), other, spec)
    site.control.until(PI, "web", lambda _: value(site) == "2\n")


def test_a_pull_that_hangs_delays_neither_the_next_generation_nor_a_removal(site: Site) -> None:
    """The registry takes the connection and never says a word."""
    silent = "import socket, time; s = socket.create_server(('127.0.0.1', 5001)); time.sleep(1000)"
    site.device.run(
        ["systemd-run", "--quiet", "--unit=silent-registry", "/usr/bin/python3", "-c", silent]
    )
    pulling = lambda: "EnsureImage: there is no such container" in str(site.device.journal())  # noqa: E731
    try:
        site.put(container("hangs", image="127.0.0.1:5001/silent:1"))
        eventually(pulling, "the pull has begun", 20)
        began = time.monotonic()
        site.converge(container("hangs"))
        site.put(container("hangs", image="127.0.0.1:5001/silent:2"))
        time.sleep(2)
        site.remove()
        assert time.monotonic() - began < 30
    finally:
        site.device.systemctl("stop", "silent-registry.service")


def test_a_bound_file_that_was_replaced_is_taken_up(site: Site) -> None:
    conf = {"type": "bind", "source": "/srv/conf", "target": "/conf"}
    folder = {"type": "bind", "source": "/srv/dir", "target": "/dir"}

    def files(content: str) -> list[File]:
        inside = File(name="in", path="/srv/dir/in", content=content, after=["File/dir"])
        dir_ = File(name="dir", path="/srv/dir", type="directory")
        return [File(name="conf", path="/srv/conf", content=content), dir_, inside]

    spec = container(mounts=[conf, folder], after=["File/conf", "File/dir"], user="0")
    told = container("told", mounts=[conf], after=["File/conf"], drift="report")

    def reads(path: str, content: str) -> None:
        def good(_: Any) -> bool:
            ran = site.device.podman("exec", "web", "cat", path, check=False)
            return str(ran.stdout) == content

        site.control.until(PI, "web", good)

    site.converge(*files("1"), spec, told)
    before, theirs = site.run_of(), site.run_of("told")
    site.put(*files("2"), spec, told)
    reads("/conf", "2")
    found = site.said("Container/told", "Degraded", "DriftReported")
    assert "/srv/conf" in found["message"]
    assert site.run_of("told") == theirs
    assert site.run_of()[0] == before[0]
    site.converge(*files("2"), spec)
    second = site.run_of()
    site.device.run(["sh", "-c", "echo evil > /srv/c; mv /srv/c /srv/conf"])
    reads("/conf", "2")
    site.device.run(["rm", "-r", "/srv/dir"])
    reads("/dir/in", "2")
    site.control.until(PI, "web", lambda status: status.phase == "Converged")
    third = site.run_of()
    assert third[0] == second[0] == before[0]
    site.settle()
    assert site.run_of() == third


AROUND: dict[str, Any] = {
    "userns": "keep-id:uid=1883,gid=1883",
    "user": "1883:1883",
    "groups": ["20"],
    "shm_size": "8Mi",
    "ulimits": {"nofile": {"soft": 100, "hard": 200}},
    "sysctls": {"net.ipv4.ip_default_ttl": "77"},
    "dns": ["192.0.2.53"],
    "dns_search": ["lan.test"],
    "extra_hosts": {"broker": "192.0.2.10"},
    "annotations": {"a.b/c": "d"},
    "timezone": "Etc/Harmony",
    "no_healthcheck": True,
}
LOOK = (
    "id -u; id -G; grep 'open files' /proc/1/limits; cat /proc/sys/net/ipv4/ip_default_ttl;"
    "cat /etc/resolv.conf /etc/hosts;"
    "df -k /dev/shm | tail -n 1; echo zone:$(tail -c 4 /etc/localtime | head -c 3)"
)
ZONE = (
    b"TZif"
    + bytes(16)
    + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
    + struct.pack(">lBB", 3600, 0, 0)
    + b"HMY\0"
)
"""A time zone: HMY, an hour from UTC."""


def around(site: Site) -> str:
    """What a process in the container finds, with one space between words."""
    return " ".join(site.device.podman("exec", "web", "sh", "-c", LOOK, check=False).stdout.split())


def test_what_a_container_finds_around_it_is_set_changed_and_removed(site: Site) -> None:
    site.device.run(["mkdir", "-p", "/usr/share/zoneinfo/Etc"])
    site.device.write("/usr/share/zoneinfo/Etc/Harmony", ZONE)
    site.converge(container(**AROUND))
    found = around(site)
    for words in (
        "1883 1883 20 Max open files 100 200 files 77",
        "search lan.test nameserver 192.0.2.53",
        "192.0.2.10 broker",
        " 8192 ",
        "zone:HMY",
    ):
        assert words in found
    annotations = site.inspect()["Config"]["Annotations"]
    assert annotations["a.b/c"] == "d"
    before = site.run_of()
    site.device.agent.restart()
    site.settle()
    assert site.run_of() == before, "podman may spell a value in its own way: that is no drift"
    changes = {"shm_size": "9Mi", "dns": ["192.0.2.54"], "extra_hosts": {"db": "192.0.2.11"}}
    site.converge(container(**{**AROUND, **changes}))
    found = around(site)
    assert " 9216 " in found
    assert "nameserver 192.0.2.54" in found
    assert "192.0.2.11 db" in found
    assert "broker" not in found
    site.converge(container())
    found = around(site)
    assert found.startswith("0 0 ")
    assert not any(words in found for words in ("192.0.2.", "zone:HMY", " 77 ", "lan.test"))


@pytest.mark.parametrize(
    ("fields", "mount"), [({"userns": "keep-id:uid=1883,gid=1883"}, {}), ({}, {"chown": True})]
)
def test_an_image_with_a_user_of_its_own_writes_a_bound_directory(
    site: Site, fields: dict[str, Any], mount: dict[str, Any]
) -> None:
    folder = File(name="own", path="/srv/own", type="directory")
    bind = {"type": "bind", "source": "/srv/own", "target": "/data", **mount}
    spec = container(user="1883:1883", after=["File/own"], mounts=[bind], **fields)
    site.converge(folder, spec)
    before = site.run_of()
    site.device.podman("exec", "web", "touch", "/data/written")
    site.settle()
    assert site.run_of() == before
    assert site.control.status(PI, "web").phase == "Converged"  # type: ignore[union-attr]
    site.device.podman("exec", "web", "rm", "/data/written")
    site.remove()
    site.device.run(["rm", "-rf", "/srv/own"])


def value(site: Site) -> str:
    """The variable P of what runs in the container."""
    return site.device.podman("exec", "web", "/bin/sh", "-c", "echo $P", check=False).stdout


def test_probes_and_logs(site: Site) -> None:
    talk = ["/bin/sh", "-c", "for i in 1 2 3; do echo line $i; done; exec sleep 100000"]
    ready = {"exec": ["/bin/test", "-e", "/tmp/ready"], "period_seconds": 0.3, "timeout_seconds": 5}
    alive = {
        "exec": ["/bin/test", "!", "-e", "/tmp/dead"],
        "period_seconds": 0.3,
        "timeout_seconds": 5,
    }
    site.put(container("web", *talk, readiness=ready, liveness={**alive, "failure_threshold": 2}))
    site.said("Container/web", "Progressing", "NotReady")
    site.device.podman("exec", "web", "touch", "/tmp/ready")
    site.until(
        "Container/web", lambda found: found["phase"] == "Ready" and found["status"]["ready"]
    )
    request = json.dumps({"resource": "Container/web", "lines": 2}).encode()
    answer = site.control.do(
        site.control.client.request(f"device-commands.{PI}.logs", request, timeout=10)
    )
    assert "line 2" in answer.data.decode()
    assert "line 3" in answer.data.decode()
    assert "line 1" not in answer.data.decode()
    before = site.run_of()
    site.device.podman("exec", "web", "touch", "/tmp/dead")
    deadline = time.monotonic() + 60
    while site.run_of() == before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert site.run_of()[0] == before[0]
    assert site.run_of()[1] != before[1]


def test_no_value_of_env_gets_out(site: Site) -> None:
    """Known fault 18: each failure in turn."""
    site.device.write("/srv/secrets", f"FILED={PASSWORD}\n", owner=USER)
    secret: dict[str, Any] = {"env": {"P": PASSWORD}, "env_files": ["/srv/secrets"]}
    site.put(
        container("pull", image="127.0.0.1:9/nope:1", **secret),
        container("create", network="nope", **secret),
        container("start", "/bin/nope", **secret),
        container(
            "init",
            init_containers=[{"name": "i", "command": ["/bin/false"], "env": {"P": PASSWORD}}],
            **secret,
        ),
        container("exit", "/bin/false", restart="never", **secret),
        container("good", **secret),
    )
    for name, reason in {
        "pull": "PullFailed",
        "create": "CreateFailed",
        "start": "StartFailed",
    }.items():
        site.said(f"Container/{name}", "Degraded", reason)
    site.said("Container/init", "Degraded", "InitFailed")
    site.said("Container/exit", "Failed", "ExitedNonZero")
    site.until("Container/good", lambda found: found["phase"] == "Ready")
    assert PASSWORD not in json.dumps(site.control.raw_status(PI, "web"))
    told = json.dumps(
        [
            entry
            for entry in site.device.journal()
            if "harmony" in str(entry.get("SYSLOG_IDENTIFIER"))
        ]
    )
    assert "StartFailed" in told or "Start" in told
    assert PASSWORD not in told
    look = "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute('SELECT * FROM records'), sep='\\n')"
    records = site.device.run(["/opt/harmony/bin/python", "-c", look, LEDGER], user=USER).stdout
    assert '"label"' in records
    assert PASSWORD not in records


def test_a_service_that_hangs_holds_up_nothing_else(site: Site) -> None:
    """Known faults 15 and 16."""
    page = File(name="page", path="/srv/p", content="1")
    site.converge(container(), page)
    before = site.run_of()
    signal_podman(site.device, signal.SIGSTOP)
    try:
        site.put(container(), File(name="page", path="/srv/p", content="2"))
        site.control.until(PI, "web", lambda _: site.device.read("/srv/p") == b"2", 5)
        found = site.until("Container/web", lambda found: found["phase"] == "Unknown", timeout=40)
        assert found["reason"] in ("PodmanUnreachable", "Timeout")
        assert heartbeat(site)["relist_age_seconds"] > 3
    finally:
        signal_podman(site.device, signal.SIGCONT)
    site.until("Container/web", lambda found: found["phase"] == "Ready")
    assert site.run_of() == before
    site.device.systemctl("restart", "podman.socket", user=True)
    site.device.podman("rm", "--force", "--time=0", "web")
    # once, or twice: a look in the middle of the removal sees it stopped first
    site.until(
        "Container/web",
        lambda found: (
            found["phase"] == "Ready" and "name" in (found["drift"] or {"fields": ()})["fields"]
        ),
    )


def heartbeat(site: Site) -> dict[str, Any]:
    store = site.control.do(site.control.jetstream.key_value("device-heartbeat"))
    value = site.control.do(store.get(f"heartbeat.{PI}")).value
    assert value is not None
    return json.loads(value)  # type: ignore[no-any-return]


def test_a_reboot_without_nats_brings_all_up_and_an_agent_restart_changes_nothing(
    site: Site,
) -> None:
    """Known fault 9."""
    site.converge(
        container(),
        container("once", "/bin/true", restart="never"),
        container("fail", restart="on-failure"),
    )
    names = ("web", "once", "fail")
    before = {name: site.run_of(name) for name in names}
    agent = site.device.agent
    agent.await_new_pid(agent.kill())
    site.settle()
    assert {name: site.run_of(name) for name in names} == before
    site.device.link.cut()
    site.device.reboot()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        after = {name: site.run_of(name) for name in names}
        if all(after[name][1] != before[name][1] for name in ("web", "fail")):
            break
        time.sleep(0.2)
    assert {name: ident for name, (ident, _) in after.items()} == {
        name: ident for name, (ident, _) in before.items()
    }
    assert after["once"] == before["once"]
    assert all(site.inspect(name)["State"]["Running"] for name in ("web", "fail"))
    site.device.link.heal()
    status = site.control.until(
        PI, "web", lambda status: status.phase == "Converged" and agent.active, 40
    ).wire()
    restarts = {
        name: status["resources"][f"Container/{name}"]["status"]["restarts"] for name in names
    }
    assert restarts == {"web": 0, "once": 0, "fail": 0}


def test_a_container_of_an_earlier_agent_is_kept(site: Site) -> None:
    """Its label is the one that was recorded before Container had devices, networks and others."""
    lines = [json.loads(line) for line in RECORDED.read_text().splitlines()]
    [(value, label)] = [(one[1], one[3]) for one in lines if one[0] == "ContainerRuns"]
    site.converge(Container.model_validate(value))
    assert site.inspect()["Config"]["Labels"][SPEC] == label
    before = site.run_of()
    site.device.agent.restart()
    site.settle()
    assert site.run_of() == before


def test_a_named_network_looks_the_same_before_and_after_a_start(site: Site) -> None:
    site.device.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    site.device.podman("network", "create", "lan")
    site.converge(
        container(network="lan", healthcheck={"command": ["/bin/true"], "interval_seconds": 1})
    )
    assert list(site.inspect()["NetworkSettings"]["Networks"]) == ["lan"]
    before = site.run_of()
    site.settle()
    assert site.run_of() == before
    site.remove()
    site.device.podman("network", "rm", "lan")
    site.device.remove("/etc/resolv.conf")
