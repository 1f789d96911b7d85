"""Health on a device: probes with thresholds and delays, what waits for them, restarts and their
pace, contention.

One device a suite, one web server of Python's as the unit that is probed.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from scores import File, SystemdUnit
from scores.base import Score
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.life import PI, Life, eventually, living, page, web
from tests.device.pods import container
from tests.device.prepare import USER

ROOT = "/srv/site"
SERVER = f"[Service]\nExecStart=/usr/bin/python3 -u -m http.server --directory {ROOT} 18080\n"
SITE = "SystemdUnit/site.service"


@pytest.fixture(scope="module", params=SUITES)
def life(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Life]:
    with living(lab, request.param) as made:
        made.device.make_folder(ROOT, owner=USER)
        yield made


@pytest.fixture(autouse=True)
def nothing_left(life: Life) -> Iterator[None]:
    yield
    life.remove()
    life.device.run(["find", ROOT, "-mindepth", "1", "-delete"])


def site(**fields: Any) -> SystemdUnit:
    return SystemdUnit.model_validate({"name": "site.service", "content": SERVER, **fields})


def http(path: str, **fields: Any) -> dict[str, Any]:
    """With a time-out that a busy machine keeps."""
    return {
        "http": {"port": 18080, "path": path},
        "period_seconds": 0.3,
        "timeout_seconds": 10,
        **fields,
    }


def starts(life: Life) -> list[float]:
    """When the site was started, in seconds of the machine's clock."""
    entries = life.device.journal(unit="site.service", user=True)
    begun = [
        entry
        for entry in entries
        if entry.get("JOB_RESULT") and str(entry["MESSAGE"]).startswith("Started ")
    ]
    return [int(str(entry["__MONOTONIC_TIMESTAMP"])) / 1e6 for entry in begun]


def asked(life: Life, path: str) -> list[float]:
    """When the server was asked for `path`, in seconds since its last start."""
    entries = life.device.journal(unit="site.service", user=True)
    started = [entry for entry in entries if entry.get("JOB_RESULT") == "done"][-1]
    begun = int(str(started["__MONOTONIC_TIMESTAMP"])) / 1e6
    times = [
        int(str(entry["__MONOTONIC_TIMESTAMP"])) / 1e6
        for entry in entries
        if f"GET {path} " in str(entry)
    ]
    return [at - begun for at in times if at > begun]


def here(life: Life, key: str) -> str:
    """A resource's phase as the agent itself tells it, which is sooner than what it writes after a
    restart.
    """
    told = life.device.agent.command("status", "--output=json", check=False).stdout
    return phase_of(json.loads(told)[0], key) if told.startswith("[") else ""


def phase_of(status: dict[str, Any], key: str) -> str:
    return str(status["resources"].get(key, {}).get("phase", ""))


# -- readiness


def test_readiness_with_its_thresholds_and_delay_gates_what_comes_after(life: Life) -> None:
    ready = http("/ready", initial_delay_seconds=1.5, success_threshold=3, failure_threshold=4)
    alive = {
        "tcp": {"port": 18080},
        "period_seconds": 0.5,
        "initial_delay_seconds": 1.5,
        "timeout_seconds": 10,
    }
    generation = life.put(site(readiness=ready, liveness=alive), page(after=[SITE]))
    found = life.said(SITE, "Progressing", "NotReady")
    assert found["status"]["active_state"] == "active"
    assert found["status"]["ready"] is False
    eventually(lambda: len(asked(life, "/ready")) >= 4, "it is probed")
    status = life.are(**{"site.service": "Progressing", "page": "Pending"})
    assert "HTTP status 404" in status["resources"][SITE]["message"]
    assert asked(life, "/ready")[0] >= 1.4
    assert not life.device.exists("/srv/life/page")

    before = len(asked(life, "/ready"))
    life.device.write(f"{ROOT}/ready", "")
    status = life.wait().wire()
    assert status["generation"] == generation
    assert status["resources"][SITE]["status"]["ready"] is True
    assert len(asked(life, "/ready")) - before >= 3
    assert life.device.exists("/srv/life/page")

    # it stops being ready, and what came after stays: nothing is taken away for it
    before = len(asked(life, "/ready"))
    life.device.remove(f"{ROOT}/ready")
    life.said(SITE, "Degraded", "NotReady")
    assert len(asked(life, "/ready")) - before >= 4
    life.are(page="Ready")
    life.device.write(f"{ROOT}/ready", "")
    life.said(SITE, "Ready")
    assert life.unit("site.service", "NRestarts") == ["0"]


def test_readiness_outlives_the_agent_for_the_same_instance_only(life: Life) -> None:
    ready = http("/ready", initial_delay_seconds=2)
    life.device.write(f"{ROOT}/ready", "")
    life.converge(site(readiness=ready), page(after=[SITE]))
    time.sleep(1.5)  # what is known is noted a moment later
    agent = life.device.agent
    began = len(life.logged(resource=SITE, reason="NotReady"))
    for stop in (agent.stop, lambda: agent.await_new_pid(agent.kill())):
        stop()
        agent.start()
        life.control.resync(PI)
        eventually(
            lambda: here(life, "File/page") == here(life, SITE) == "Ready", "both are looked at"
        )
    assert (
        len(life.logged(resource=SITE, reason="NotReady")) == began
    )  # it would have waited for its probe

    agent.stop()
    life.device.systemctl("restart", "site.service", user=True)
    agent.start()
    fresh = lambda: len(life.logged(resource=SITE, reason="NotReady")) == began + 1  # noqa: E731
    eventually(fresh, "another instance begins anew")
    eventually(lambda: here(life, SITE) == "Ready", "and is ready when its probe says so")
    assert asked(life, "/ready")[0] >= 1.9


# -- liveness


@pytest.mark.parametrize("kind", ["http", "tcp"])
def test_liveness_restarts_after_its_threshold_and_then_with_pauses(life: Life, kind: str) -> None:
    """Of http the server answers and says no; of tcp nothing listens any more, though the process
    runs on.
    """
    life.device.write(f"{ROOT}/alive", "")
    before = len(starts(life))
    if kind == "http":
        score = site(liveness=http("/alive", failure_threshold=3))
    else:
        deaf = "import socket, time; s = socket.create_server(('127.0.0.1', 18080)); time.sleep(3); s.close(); "
        content = f'[Service]\nExecStart=/usr/bin/python3 -u -c "{deaf}time.sleep(1000)"\n'
        probe = {
            "tcp": {"port": 18080},
            "period_seconds": 0.3,
            "failure_threshold": 3,
            "initial_delay_seconds": 1,
        }
        probe["timeout_seconds"] = 10
        score = site(content=content, liveness=probe)
    life.put(score)
    if kind == "http":
        life.wait()
        life.device.remove(f"{ROOT}/alive")
    eventually(lambda: len(starts(life)) - before >= 2, "it is restarted")
    assert life.logged(resource=SITE, reason="LivenessFailed", deployment="life")
    found = life.said(
        SITE, "Degraded", "LivenessFailed"
    )  # it fails again at once: now there is a pause
    assert re.search(r"its liveness probe fails: .*; next start in \d+ s", found["message"])
    time.sleep(2)
    _, restarted, *later = starts(life)[before:]
    assert all(at - restarted > 9 for at in later[:1]), "a start within the pause"
    assert len(later) <= 1
    assert life.unit("site.service", "ActiveState") == ["active"]


def test_podmans_own_healthcheck_counts_as_readiness(life: Life) -> None:
    check = {"command": ["/bin/test", "-e", "/tmp/well"], "interval_seconds": 1, "retries": 1}
    life.put(container("box", healthcheck=check), page(after=["Container/box"]))
    life.until(lambda status: phase_of(status, "Container/box") in ("Progressing", "Degraded"))
    life.until(lambda status: phase_of(status, "File/page") == "Pending")
    life.device.podman("exec", "box", "touch", "/tmp/well")
    life.wait()
    life.device.podman("exec", "box", "rm", "/tmp/well")
    life.said("Container/box", "Degraded", "Unhealthy")
    life.device.podman("exec", "box", "touch", "/tmp/well")
    life.wait()


# -- what ends by itself, and what is undone by somebody


def test_a_crash_loop_shows_its_restarts_exit_code_and_pace(life: Life) -> None:
    crash = container("box", "/bin/sh", "-c", "exit 3")
    life.put(crash, page())
    found = life.said("Container/box", "Degraded", "CrashLoop")
    assert (found["status"]["exit_code"], found["status"]["state"]) == (3, "Exited")
    assert found["status"]["restarts"] >= 1
    assert re.search(r"next start in \d+ s", found["message"])
    life.are(page="Ready")
    first = started(life)
    time.sleep(2)
    assert started(life) == first or started(life) - first > 9
    life.converge(container("box"), page())  # a new spec begins anew, at once


def started(life: Life) -> int:
    """When the box was started last, in seconds."""
    return int(life.device.podman("inspect", "--format={{.State.StartedAt.Unix}}", "box").stdout)


def test_what_something_keeps_undoing_is_contended_and_left_for_a_while(life: Life) -> None:
    others: list[Score] = [
        File(name="other", path="/srv/life/other", content="x", parents=True),
        web(),
    ]
    life.converge(page(), *others)
    for number in range(
        40
    ):  # five repairs; what is undone again before one has ended belongs to that one
        life.device.write("/srv/life/page", f"undone {number}")
        eventually(lambda: repaired(life) or contended(life), "it is repaired, or left")
        if contended(life):
            break
        time.sleep(0.3)
    undone = life.device.read("/srv/life/page")
    found = life.said("File/page", "Degraded", "Contended")
    drift = found["drift"]
    assert (drift["action"], drift["count"], drift["fields"]) == ("contended", 5, ["content"])
    assert drift["first_seen"] < drift["last_seen"]
    assert re.search(r"something keeps undoing this \(.*\); next repair in \d+ s", found["message"])
    time.sleep(1.5)
    assert life.device.read("/srv/life/page") == undone != b"page\n"
    life.are(**{"other": "Ready", "web.service": "Ready"})
    life.converge(page("new\n"), *others)


def repaired(life: Life) -> bool:
    return life.device.read("/srv/life/page") == b"page\n"


def contended(life: Life) -> bool:
    return str(life.resource("File/page")["reason"]) == "Contended"


def test_a_oneshot_unit_and_a_container_that_end_well_block_nothing(life: Life) -> None:
    """Known fault 17."""
    once = SystemdUnit(
        name="once.service", content="[Service]\nType=oneshot\nExecStart=/bin/true\n"
    )
    done = container("done", "/bin/true", restart="never")
    life.converge(once, done, page(after=["SystemdUnit/once.service", "Container/done"]))
    status = life.are(**{"once.service": "Completed", "done": "Completed", "page": "Ready"})
    assert status["resources"]["Container/done"]["status"]["exit_code"] == 0
    eventually(
        lambda: life.told() == "3 of 3 resources ready", "the status line counts them as ready"
    )
    runs = finished(life)
    started = life.box("done")
    life.device.agent.restart()
    life.control.resync(PI)
    time.sleep(2)
    assert finished(life) == runs == 1
    assert life.box("done") == started


def finished(life: Life) -> int:
    """How often the oneshot ran; its InvocationID goes when systemd forgets the unit."""
    return sum(
        "Finished once.service" in line
        for line in life.device.messages(unit="once.service", user=True)
    )
