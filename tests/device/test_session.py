"""Session through the whole agent on real tmux: made, undone in every way that a person can, and what
isn't ours is left alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from scores import DeviceInfo, Manifest, Session
from scores.keys import INFO, info_key
from tests.device.control import Control
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.pods import Site
from tests.device.prepare import USER
from tests.scale import scaled

PI = "pi-01"
CONFIG: Mapping[str, Mapping[str, Any]] = {
    "agent": {"device_id": PI, "kinds": ["File", "Session"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
}
SECRET = "hunter2-correct-horse"
OTHERS = scaled(200, 1000)


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    lan = lab.lan()
    device = lab.device(request.param, lan)
    control = Control(lan.nats.host_url).__enter__()
    device.agent.install(CONFIG, service_type="notify")
    yield Site(device, control, lan)
    control.__exit__(None, None, None)
    device.close()
    lan.close()


@pytest.fixture(autouse=True)
def nothing_left(site: Site) -> Iterator[None]:
    """Each test's deployment goes, and with it every session of ours."""
    yield
    status = site.control.status(PI, "web")
    if status is not None and status.phase != "Removed":
        site.remove()


def session(name: str = "worker", *command: str, **fields: Any) -> Session:
    base = {"name": name, "command": list(command or ("/bin/sleep", "100000"))}
    return Session.model_validate({**base, **fields})


def socket(device: Device) -> str:
    uid = device.run(["id", "--user", USER]).stdout.strip()
    return f"/run/user/{uid}/harmony-sessions/tmux.sock"


def tmux(device: Device, *words: str, check: bool = True) -> str:
    """What a person says to tmux."""
    return device.run(["tmux", "-S", socket(device), *words], user=USER, check=check).stdout


def names(device: Device) -> list[str]:
    listed = tmux(device, "list-sessions", "-F", "#{session_name}", check=False)
    return sorted(listed.split())


def pid_of(device: Device, name: str = "worker") -> int:
    return int(tmux(device, "list-panes", "-s", "-t", f"={name}", "-F", "#{pane_pid}").split()[0])


def has_tmux(site: Site) -> bool:
    """Whether device-info tells of tmux."""
    subject = f"$KV.{INFO}.{info_key(PI)}"
    found = site.control.do(site.control.jetstream.get_last_msg(f"KV_{INFO}", subject))
    return DeviceInfo.model_validate_json(found.data or b"").capabilities.tmux is not None


def soon(good: Callable[[], bool], seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not good():
        assert time.monotonic() < end
        time.sleep(0.1)


def ready(site: Site, good: Callable[[dict[str, Any]], bool] = lambda _status: True) -> Any:
    """Wait until the worker is Ready and shown like that; its typed status."""
    found = site.until(
        "Session/worker", lambda found: found["phase"] == "Ready" and good(found["status"])
    )
    return found["status"]


def test_it_is_kept_whatever_a_person_does(site: Site) -> None:
    device = site.device
    shown = site.converge(session(env={"TOKEN": SECRET}))["Session/worker"]["status"]
    first = pid_of(device)
    assert (shown["state"], shown["pid"], shown["attached"]) == ("Running", first, 0)
    assert names(device) == ["worker"]
    environment = device.run(["cat", f"/proc/{first}/environ"], user=USER).stdout
    assert f"TOKEN={SECRET}" in environment.split("\0")

    tmux(device, "kill-session", "-t", "=worker")
    second = ready(site, lambda status: status["pid"] not in (None, first))["pid"]
    assert pid_of(device) == second

    tmux(device, "rename-session", "-t", "=worker", "mine")
    soon(lambda: names(device) == ["worker"])
    assert pid_of(device) == second

    device.run(["kill", "-9", str(second)])
    third = ready(site, lambda status: status["restarts"] == 1 and status["pid"] is not None)
    assert third["exit_code"] == 137
    assert pid_of(device) == third["pid"] != second

    device.run(["rm", socket(device)])
    soon(lambda: names(device) == ["worker"])
    assert pid_of(device) == third["pid"]

    device.systemctl("kill", "--signal=KILL", "harmony-sessions.service", user=True)
    ready(site, lambda status: status["pid"] not in (None, third["pid"]))
    assert names(device) == ["worker"]
    told = "\n".join([*device.agent.messages(), site.control.status(PI, "web").model_dump_json()])
    assert SECRET not in told


def test_an_end_is_noticed_without_a_relist(site: Site) -> None:
    device, intervals = site.device, {**CONFIG["intervals"], "relist": 600}
    device.agent.configure({**CONFIG, "intervals": intervals})
    device.agent.restart()
    site.converge(session())
    first = pid_of(device)
    device.run(["kill", "-9", str(first)])
    second = ready(site, lambda status: status["pid"] not in (None, first))
    assert (second["restarts"], second["exit_code"]) == (1, 137)
    tmux(device, "kill-session", "-t", "=worker")
    third = ready(site, lambda status: status["pid"] not in (None, first, second["pid"]))["pid"]
    device.run(["rm", socket(device)])
    soon(lambda: names(device) == ["worker"])
    assert pid_of(device) == third
    device.systemctl("kill", "--signal=KILL", "harmony-sessions.service", user=True)
    ready(site, lambda status: status["pid"] not in (None, third))
    device.agent.configure(CONFIG)
    device.agent.restart()


def test_what_is_not_ours_is_left_alone(site: Site) -> None:
    device = site.device
    site.converge(session("first"))
    stranger = ["-n", "one", "--", "/usr/bin/env", "/bin/sleep", "100000"]
    others = [f"other-{number}" for number in range(OTHERS)]
    made = "\n".join(f"new-session -d -s {name} {' '.join(stranger)}" for name in others)
    told = ["tmux", "-S", socket(device), "source-file", "-"]
    device.run(told, user=USER, input=made, timeout=120)
    tmux(device, "new-session", "-d", "-s", "worker", *stranger)
    twin = pid_of(device)
    site.put(session("first"), session())
    site.said("Session/worker", "Blocked", "OwnershipConflict")
    told = device.agent.command("check", check=False).stdout
    assert "unmanaged sessions: Session/other-0, " in told
    site.remove()
    assert names(device) == sorted([*others, "worker"])
    assert pid_of(device) == twin
    tmux(device, "kill-server")


def test_an_end_is_shown_and_concluded(site: Site) -> None:
    script = "print('the last words'); raise SystemExit(3)"
    site.put(session("worker", "/usr/bin/python3", "-c", script, restart="never"))
    found = site.said("Session/worker", "Failed", "ExitedNonZero")["status"]
    assert (found["state"], found["exit_code"]) == ("Exited", 3)
    assert [pane["exit_code"] for pane in found["dead_panes"]] == [3]
    request = json.dumps({"resource": "Session/worker", "lines": 20}).encode()
    asked = site.control.client.request(f"device-commands.{PI}.logs", request, timeout=10)
    assert "the last words" in site.control.do(asked).data.decode()


def test_a_reboot_starts_what_is_to_run_and_nothing_else(site: Site) -> None:
    device = site.device
    site.converge(session(), session("off"), session("gone"))
    assert names(device) == ["gone", "off", "worker"]
    site.converge(session(), session("off", state="stopped"))
    assert names(device) == ["worker"]
    before = device.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout
    device.reboot()
    assert device.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout != before
    soon(lambda: names(device) == ["worker"], 30)
    status = ready(site, lambda status: status["pid"] == pid_of(device))
    assert status["restarts"] == 0
    site.settle()
    assert names(device) == ["worker"]


def test_an_agent_that_stops_leaves_it_running(site: Site) -> None:
    device = site.device
    site.converge(session())
    pid = pid_of(device)
    device.agent.stop()
    assert pid_of(device) == pid
    device.agent.start()
    site.converge(session(), session("second"))
    assert pid_of(device) == pid


def test_an_unsafe_path_and_no_tmux_are_told(site: Site) -> None:
    device = site.device
    device.run(["mkdir", "--mode=0700", "/srv/real"], user=USER)
    device.run(["ln", "-s", "/srv/real", "/srv/way"], user=USER)
    config = {**CONFIG, "sessions": {"socket": "/srv/way/tmux.sock"}}
    device.agent.configure(config)
    device.agent.restart()
    site.control.apply(PI, Manifest(deployment="web", scores=(session(),)))
    site.said("Session/worker", "Blocked", "SessionSocketUnsafe")
    device.run(["mv", "/usr/bin/tmux", "/usr/bin/tmux.away"])
    device.agent.configure(CONFIG)
    device.agent.restart()
    site.said("Session/worker", "Blocked", "SessionsUnavailable")
    soon(lambda: not has_tmux(site), 30)
    device.run(["mv", "/usr/bin/tmux.away", "/usr/bin/tmux"])
    ready(site)
