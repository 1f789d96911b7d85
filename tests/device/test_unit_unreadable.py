"""A unit whose file neither the agent nor its manager can read, since root closed it: put right, and
removed. What can't be put right holds up nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from scores import SystemdUnit
from scores.base import Score
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.test_systemd_unit import SLEEP, UNITS, Site, Sites, reason, web

CLOSED = "/srv/closed.service"


@pytest.fixture(scope="module", params=SUITES)
def sites(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Sites]:
    made = Sites(lab, request.param)
    yield made
    made.drop()


@pytest.fixture
def site(sites: Sites) -> Iterator[Site]:
    """What a failed test leaves isn't left to the next."""
    made = sites.site()
    yield made
    if made.status()["phase"] != "Removed":
        sites.drop()


def close(place: str) -> Callable[[Site], None]:
    """Root takes the file, and closes it."""

    def done(site: Site) -> None:
        site.device.run(["chown", "root:root", f"{UNITS}/{place}"])
        site.device.run(["chmod", "0600", f"{UNITS}/{place}"])

    return done


def link(place: str, target: str) -> Callable[[Site], None]:
    """A link in its place."""

    def done(site: Site) -> None:
        site.device.write(CLOSED, SLEEP.format("closed"), mode=0o600)
        site.device.run(["ln", "-sfn", target, f"{UNITS}/{place}"])

    return done


WEB = web(enabled=True, dropins={"10-a.conf": "[Service]\nNice=5\n"})
INSTANCE = SystemdUnit(name="x@a.service", enabled=True, after=["SystemdUnit/x@.service"])
TEMPLATE = SystemdUnit(name="x@.service", content=SLEEP.format("%i"))
BROKEN: dict[str, tuple[tuple[Score, ...], str, Callable[[Site], None]]] = {
    "file": ((WEB,), "web.service", close("web.service")),
    "dropin": ((WEB,), "web.service", close("web.service.d/10-a.conf")),
    "template": ((TEMPLATE, INSTANCE), "x@a.service", close("x@.service")),
    "target": ((WEB,), "web.service", link("web.service", CLOSED)),
    "circle": ((WEB,), "web.service", link("web.service", "web.service")),
}


@pytest.mark.parametrize("case", BROKEN)
def test_it_is_put_right_at_the_agents_start(site: Site, case: str) -> None:
    scores, unit, break_it = BROKEN[case]
    names = ("FragmentPath", "DropInPaths", "Nice", "Description", "ActiveState")
    site.converge(*scores)
    before = site.show(unit, *names)
    site.device.agent.stop()
    break_it(site)
    site.by_hand("daemon-reload")
    site.device.agent.start()
    status = site.until(
        lambda status: (
            any(one["drift"] for one in status["resources"].values())
            and status["phase"] == "Converged"
        )
    )
    drifts = [one["drift"] for one in status["resources"].values() if one["drift"]]
    assert {drift["action"] for drift in drifts} == {"repaired"}
    assert {*drifts[0]["fields"]} & {"content", "dropins"}
    assert site.show(unit, *names, "NeedDaemonReload") == {**before, "NeedDaemonReload": "no"}
    assert site.enabled(unit) == "enabled"
    site.remove()


@pytest.mark.parametrize("case", BROKEN)
def test_it_is_removed(site: Site, case: str) -> None:
    scores, unit, break_it = BROKEN[case]
    site.converge(*scores)
    site.device.agent.stop()
    break_it(site)
    site.device.agent.start()
    site.remove()
    found = site.device.run(["find", UNITS, "-name", f"{unit.partition('@')[0]}*"]).stdout
    assert found == ""
    assert site.show(unit, "LoadState", "ActiveState") == {
        "LoadState": "not-found",
        "ActiveState": "inactive",
    }


def test_a_closed_folder_of_drop_ins_is_named_and_holds_up_nothing_else(site: Site) -> None:
    other = SystemdUnit(name="other.service", content=SLEEP.format("other"))
    site.converge(WEB, other)
    folder = f"{UNITS}/web.service.d"
    site.device.run(["chown", "root:root", folder])
    site.device.run(["chmod", "0700", folder])
    found = site.until(reason("SystemdUnit/web.service", "Blocked", "AccessDenied"))
    assert "web.service.d" in found["resources"]["SystemdUnit/web.service"]["message"]
    changed = other.model_copy(update={"content": SLEEP.format("changed")})
    site.put(WEB, changed)
    site.wait(lambda: site.show("other.service", "Description") == {"Description": "changed"})
    site.device.run(["chown", "fleet-agent:fleet-agent", folder])
    site.control.resync("pi-01")
    site.until(lambda status: status["phase"] == "Converged", seconds=60)
    site.remove()
