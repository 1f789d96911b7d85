"""Containers that run at times, and those that run once: on rootless podman, over one minute and a
reboot.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from scores.names import parse_time
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.pods import CONFIG, Site, container, make, unmake

SELDOM = {**CONFIG, "intervals": {"heartbeat": 1, "relist": 300, "poll": 1}}
"""A relist so seldom that the agent wakes for a time by itself."""
EVERY = {"schedule": "* * * * *"}


@pytest.fixture(scope="module", params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    made = make(lab, request.param, config=SELDOM)
    yield made
    unmake(made)


def test_they_run_at_their_times_and_once_and_a_cut_is_told(site: Site) -> None:
    append = ["/bin/sh", "-c", "echo run >> /data/runs"]
    data = {"mounts": [{"type": "volume", "source": "runs", "target": "/data"}]}
    resources = site.converge(
        container("good", *append, **data, **EVERY),
        container("bad", "/bin/sh", "-c", "exit 3", **EVERY),
        container("long", **EVERY),
        container("once", *append, **data, restart="never"),
    )
    once = site.until("Container/once", lambda found: "last_run" in found["status"])
    assert (once["phase"], once["status"]["last_run"]["exit_code"]) == ("Completed", 0)
    upcoming = resources["Container/good"]["status"]["schedule"]["next"]

    good = site.until("Container/good", lambda found: "last_run" in found["status"], timeout=90)
    run = good["status"]["last_run"]
    assert (good["phase"], run["result"], run["due"], run["exit_code"]) == (
        "Ready",
        "Exited",
        upcoming,
        0,
    )
    late = parse_time(run["started"]) - parse_time(run["due"])
    assert 0 <= late.total_seconds() < 20
    assert parse_time(good["status"]["schedule"]["next"]) > parse_time(upcoming)
    bad = site.said("Container/bad", "Degraded", "JobFailed")
    assert bad["status"]["last_run"]["exit_code"] == 3
    site.until("Container/long", lambda found: found["status"]["state"] == "Running")
    assert site.device.podman("exec", "long", "true", check=False).rc == 0
    runs = site.device.podman("volume", "inspect", "runs", "--format={{.Mountpoint}}").stdout
    assert site.device.read_text(f"{runs.strip()}/runs") == "run\nrun\n"

    site.device.reboot()
    cut = site.said("Container/long", "Degraded", "RunCut", timeout=60)
    assert cut["status"]["last_run"]["result"] == "Cut"
    once = site.until("Container/once", lambda found: found["phase"] == "Completed")
    assert once["status"]["last_run"]["exit_code"] == 0
    good = site.until("Container/good", lambda found: found["phase"] == "Ready")
    assert good["status"]["restarts"] == 0
    site.remove()
    assert site.ours() == []
