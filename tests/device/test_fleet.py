"""The fleet on real devices: five commands from empty to converged, and each drift class made by
hand.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from scores import Manifest
from tests.device.fleetsite import NAMES, FleetSite
from tests.device.lab import Lab
from tests.device.prepare import USER

OTHER = "00000000-0000-4000-8000-000000000009"
SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"
PAGE = "/srv/web/page"
SCORES = [
    {
        "kind": "File",
        "name": "page",
        "path": PAGE,
        "content": {"$text": "${device} ${port}\n"},
        "parents": True,
    },
    {
        "kind": "SystemdUnit",
        "name": "web.service",
        "content": SLEEP,
        "enabled": True,
        "drift": "report",
    },
]
UNIT = "SystemdUnit/web.service"


@pytest.fixture
def site(lab: Lab) -> Iterator[FleetSite]:
    made = FleetSite(lab)
    yield made
    made.close()


def converge(site: FleetSite) -> None:
    """The five commands of the README."""
    file = site.folder / "web.json"
    file.write_text(json.dumps(SCORES))
    site("fleet", "init")
    site.change("device", "add", "pi-01", "pi-02", "--class", "web", "--variable", "port=80")
    site.change("device", "add", "pi-03", "--class", "edge", "--variable", "port=81")
    site.change("deployment", "add", "web", "--file", str(file))
    site("fleet", "apply", "--wait", "--timeout", "60s")


def active(site: FleetSite, name: str) -> str:
    return (
        site.devices[name]
        .systemctl("is-active", "web.service", user=True, check=False)
        .stdout.strip()
    )


def unit(site: FleetSite, name: str, verb: str) -> None:
    site.devices[name].systemctl(verb, "web.service", user=True)


def test_five_commands_then_every_drift_is_named_and_mended_or_left(site: FleetSite) -> None:
    converge(site)
    assert site.findings() == set()
    for name, port in zip(NAMES, (80, 80, 81), strict=True):
        assert site.devices[name].read_text(PAGE) == f"{name} {port}\n"
        assert active(site, name) == "active"

    # projection-differs, and fenced: somebody wrote past the roster.
    wire = site.wire("pi-01")
    other: Any = wire.model_copy(update={"generation": 2, "scores": wire.scores[:1]})
    site.put(other)
    site.until(lambda found: found == {("projection-differs", "pi-01/web", "")})
    apply(site)
    site.put(wire)
    site.until(lambda found: {code for code, _, _ in found} == {"fenced", "projection-differs"})
    apply(site)

    # projection-missing: what is enforced stays, and the key comes back.
    site.purge("pi-02", "web")
    site.until(lambda found: ("projection-missing", "pi-02/web", "") in found)
    assert active(site, "pi-02") == "active"
    apply(site)

    # missing and unexpected: this unit's drift is only reported, so apply leaves it.
    unit(site, "pi-01", "stop")
    site.until(lambda found: ("missing", "pi-01/web", UNIT) in found)
    unit(site, "pi-01", "start")
    site.until(lambda found: not found)
    site.change("device", "set", "pi-01", "--desired-state", "stopped")
    apply(site)
    assert (active(site, "pi-01"), site.devices["pi-01"].read_text(PAGE)) == (
        "inactive",
        "pi-01 80\n",
    )
    unit(site, "pi-01", "start")
    site.until(lambda found: ("unexpected", "pi-01/web", UNIT) in found)
    unit(site, "pi-01", "stop")
    site.change("device", "set", "pi-01", "--desired-state", "running")
    apply(site)
    assert active(site, "pi-01") == "active"

    # disabled-running: disabled wins, also over a boot.
    site.change("device", "set", "pi-02", "--disable")
    site.until(lambda found: ("disabled-running", "pi-02/web", UNIT) in found)
    apply(site)
    assert active(site, "pi-02") == "inactive"
    site.devices["pi-02"].reboot()
    site.until(lambda found: not found)
    assert active(site, "pi-02") == "inactive"
    site.change("device", "set", "pi-02", "--enable")
    apply(site)
    assert active(site, "pi-02") == "active"


def apply(site: FleetSite) -> None:
    """Mended: nothing is found any more."""
    site("fleet", "apply", "--wait", "--timeout", "60s")
    site.until(lambda found: not found)


def test_what_apply_must_leave_alone(site: FleetSite) -> None:
    converge(site)
    device = site.devices["pi-01"]

    # unmanaged: a key, and a file, that nobody of ours wrote.
    theirs = Manifest(deployment="theirs").bind("pi-01", OTHER, 1)
    site.put(theirs)
    device.write("/srv/web/mine", "mine\n", owner=USER)
    file = site.folder / "b.json"
    file.write_text(
        json.dumps([{"kind": "File", "name": "mine", "path": "/srv/web/mine", "content": "ours\n"}])
    )
    site.change("deployment", "add", "b", "--file", str(file), "--class", "web")
    site("fleet", "apply", "--wait", "--timeout", "60s", code=5)
    found = site.until(lambda found: ("unmanaged", "pi-01/b", "File/mine") in found)
    assert ("unmanaged", "pi-01/theirs", "") in found
    assert device.read_text("/srv/web/mine") == "mine\n"
    assert site.wire("pi-01", "theirs").canonical() == theirs.canonical()
    site.change("deployment", "remove", "b")
    site("fleet", "reconcile", "--timeout", "60s", code=5)  # it would go from two of three devices
    site(
        "fleet", "reconcile", "--allow-removals", "2", "--timeout", "60s", code=1
    )  # theirs is still there
    assert device.read_text("/srv/web/mine") == "mine\n"
    site.put(Manifest(deployment="theirs", removed=True).bind("pi-01", OTHER, 2))
    site.control.until("pi-01", "theirs", lambda status: status.phase == "Removed")
    site.purge("pi-01", "theirs")

    # capability-missing holds that device up, and no other.
    file.write_text(json.dumps([{"kind": "Container", "name": "c", "image": "localhost/c"}]))
    site.change("deployment", "add", "c", "--file", str(file), "--class", "edge")
    site.change("device", "set", "pi-01", "--variable", "port=99")
    site.until(lambda found: ("capability-missing", "pi-03/c", "") in found)
    site("fleet", "apply", "--wait", "--timeout", "60s", code=5)
    site.change("deployment", "remove", "c")
    apply(site)
    assert device.read_text(PAGE) == "pi-01 99\n"

    # ownership-mismatch holds everything up until it is said whose it is; the device keeps what it
    # had.
    wire: Any = site.wire("pi-02").model_copy(update={"lineage": OTHER})
    site.put(wire)
    site.until(lambda found: ("ownership-mismatch", "pi-02/web", "") in found)
    site("fleet", "apply", code=3)
    assert active(site, "pi-02") == "active"
    site("fleet", "apply", "--take-over", "--wait", "--timeout", "60s")
    site.until(lambda found: not found)

    # not-converged: something stands in the way, and it goes on by itself when that is gone.
    stone = "import os, sys; p = sys.argv[1]; os.unlink(p); os.mkdir(p); os.mkdir(p + '/stone')"
    site.devices["pi-03"].run(["python3", "-c", stone, PAGE])  # at once, or the agent is faster
    site.until(lambda found: ("not-converged", "pi-03/web", "") in found)
    site.devices["pi-03"].run(["rm", "-r", PAGE])
    site.until(lambda found: not found)

    # heartbeat-stale, by the server's time alone; an apply meanwhile is taken when it is back.
    site.devices["pi-03"].link.cut()
    site.until(lambda found: found == {("heartbeat-stale", "pi-03", "")}, 60)
    site.change("device", "set", "pi-03", "--variable", "port=82")
    site("fleet", "apply", "--wait", "--timeout", "2s", code=4)
    site.devices["pi-03"].link.heal()
    site.until(lambda found: not found, 60)
    assert site.devices["pi-03"].read_text(PAGE) == "pi-03 82\n"

    # A device that leaves is cleaned, and its key goes.
    site.change("device", "remove", "pi-03")
    site("fleet", "apply", "--wait", "--timeout", "60s")
    assert not site.devices["pi-03"].exists(PAGE)
    assert site.findings() == {("unmanaged", "pi-03", "")}
