"""A generation that breaks its probe goes back by itself: without a network, with all that it took away, and over a power
cut.
"""

from __future__ import annotations

import json

import pytest

from scores import Manifest, SystemdUnit
from scores.base import Score
from tests.device.lab import Lab
from tests.device.life import PI, SLEEP, Life, eventually, living, page, web
from tests.device.pods import container

NOBODY = {"tcp": {"port": 9}, "period_seconds": 1}
"""A probe of a port on which nothing listens."""


def good() -> tuple[Score, ...]:
    extra = SystemdUnit(name="extra.service", content=SLEEP.format("extra"), enabled=True)
    mounts = [{"type": "volume", "source": "test-data", "target": "/data"}]
    return page("first\n"), web("first"), extra, container("box", env={"N": "1"}, mounts=mounts)


def bad() -> tuple[Score, ...]:
    """The page and a unit go, the container changes, and never gets ready."""
    return web("second"), container("box", env={"N": "2"}, readiness=NOBODY)


def env_of(life: Life) -> list[str]:
    done = life.device.podman("container", "inspect", "box", check=False)
    return [] if done.rc else list(json.loads(done.stdout)[0]["Config"]["Env"])


def is_as_first(life: Life) -> bool:
    device = life.device
    return (
        device.exists("/srv/life/page")
        and device.read_text("/srv/life/page") == "first\n"
        and life.unit("web.service", "Description", "ActiveState") == ["first", "active"]
        and life.unit("extra.service", "ActiveState", "UnitFileState") == ["active", "enabled"]
        and "N=1" in env_of(life)
        and life.box()[2]
    )


@pytest.mark.timeout(300)
def test_a_generation_that_breaks_its_probe_goes_back_without_a_network(
    lab: Lab, suite: str
) -> None:
    with living(lab, suite, durable=True) as life:
        device = life.device
        life.converge(*good())
        device.podman("exec", "box", "/bin/sh", "-c", "echo kept > /data/file")
        tried = Manifest(deployment="life", scores=bad(), allow_prune=9, revert_after="25s")
        life.control.apply(PI, tried)
        life.until(lambda status: status["generation"] == 2)
        eventually(lambda: not device.exists("/srv/life/page"), "the page is gone")
        device.link.cut()
        eventually(lambda: "N=2" in env_of(life), "the container is the new one")
        device.agent.kill()
        eventually(lambda: is_as_first(life), "everything is as it was", 90)
        assert device.podman("exec", "box", "/bin/cat", "/data/file").stdout == "kept\n"
        device.power_cut()
        eventually(lambda: is_as_first(life), "it is so after a power cut", 90)
        device.link.heal()
        said = life.until(lambda status: status["phase"] == "Rejected", 90)
        assert (said["reason"], said["generation"]) == ("Reverted", 1)
        assert said["rejected"]["generation"] == 2
        assert "Container/box" in said["message"]
        eventually(lambda: is_as_first(life), "it stays")
        life.converge(page("third\n"), web("third"))
