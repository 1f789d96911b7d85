"""The power goes while a container is being made, and right after: what didn't reach the disk is
made anew.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.device.lab import Lab
from tests.device.pods import PI, Site, container, make, unmake


def made(site: Site) -> bool:
    """Whether podman shows the container, in whatever state."""
    return site.ours() != []


def ready(site: Site) -> bool:
    """Whether the agent says that the container runs."""
    status = site.control.status(PI, "web")
    return status is not None and status.phase == "Converged"


@pytest.mark.parametrize("moment", [made, ready])
def test_a_power_cut(lab: Lab, suite: str, moment: object) -> None:
    site = make(lab, suite, durable=True)
    try:
        spec = container(
            env={"P": "1"}, mounts=[{"type": "volume", "source": "data", "target": "/data"}]
        )
        site.put(spec)
        deadline = time.monotonic() + 30
        while not moment(site):  # type: ignore[operator]  # one of the two above
            assert time.monotonic() < deadline
            time.sleep(0.02)
        site.device.power_cut()
        site.control.until(PI, "web", lambda _: running(site), timeout=60)
        # What the status showed before the cut may still stand there.
        site.until(
            "Container/web",
            lambda found: found["phase"] == "Ready" and found["status"]["id"] == ident(site),
        )
        assert site.ours() == ["web"]
        before = site.run_of()
        site.settle()
        assert site.run_of() == before
        site.remove()
        assert site.device.podman("ps", "--all", "--external", "--quiet").stdout == ""
    finally:
        unmake(site)


def ident(site: Site) -> str:
    """The container's id now."""
    return site.run_of()[0]


def running(site: Site) -> bool:
    """Whether podman says that it runs."""
    shown = site.device.podman("container", "inspect", "web", check=False)
    return shown.rc == 0 and bool(json.loads(shown.stdout)[0]["State"]["Running"])
