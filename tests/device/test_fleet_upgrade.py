"""Upgrade runs over three real devices: waves with real apt and reboots, one unplugged, one that
breaks, ten kills.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.device.fleetsite import NAMES, FleetSite
from tests.device.lab import Lab
from tests.device.upgrades import sample, script


@pytest.fixture
def site(lab: Lab) -> Iterator[FleetSite]:
    made = FleetSite(lab, updaters=True)
    for one in made.upgrading.values():
        one.has(sample("1.0"))
    made("fleet", "init")
    made.change("device", "add", *NAMES, "--class", "web", "--label", "site=home")
    deadline = time.monotonic() + 30
    while len([item for item in made("devices", "-o", "json").json if item["info"]]) < len(NAMES):
        assert time.monotonic() < deadline, "the devices told nothing of themselves"
        time.sleep(0.2)
    made.attend()
    yield made
    made.close()


def offer(site: FleetSite, *names: str, **more: Any) -> None:
    for name in names:
        site.upgrading[name].offers(sample("2.0", **more))


def states(run: dict[str, Any]) -> dict[str, str]:
    return {target["device"]: target["state"] for target in run["targets"]}


def versions(site: FleetSite, *names: str) -> list[str]:
    return [site.upgrading[name].version("harmony-sample") for name in names]


BOUNDS = ("--max-unavailable", "2", "-o", "json")


def test_two_waves_with_real_apt_and_reboots_succeed(site: FleetSite) -> None:
    offer(site, *NAMES)
    before = {name: device.boot_id() for name, device in site.devices.items()}
    run = site("upgrade", "start", "--select", "site=home", "--deadline", "5m", *BOUNDS).json
    site.unattend()
    assert (run["phase"], set(states(run).values())) == ("Succeeded", {"succeeded"})
    assert [target["wave"] for target in run["targets"]] == [1, 1, 2]
    assert versions(site, *NAMES) == ["2.0"] * 3
    for target in run["targets"]:
        boots = (target["boot_id_before"], target["boot_id_after"])
        assert boots == (before[target["device"]], site.devices[target["device"]].boot_id())
    assert site.reboots == dict.fromkeys(NAMES, 1)
    assert [one.upgrades() for one in site.upgrading.values()] == [1, 1, 1]
    assert site("get", "-o", "json").json == []
    assert site.findings() == set()


def test_one_that_is_unplugged_fails_the_run_at_its_deadline_and_the_others_are_upgraded(
    site: FleetSite,
) -> None:
    offer(site, *NAMES)
    process = site.start("upgrade", "start", "--all", "--deadline", "60s", *BOUNDS)
    while "pi-03: requested" not in (line := process.stderr.readline()) and line:  # type: ignore[union-attr]
        continue
    site.devices["pi-03"].link.cut()
    ran = site.ended(process)
    assert ran.code == 1, ran.err
    assert states(ran.json) == {"pi-01": "succeeded", "pi-02": "succeeded", "pi-03": "failed"}
    assert ran.json["reason"] == "DeadlineExceeded"
    assert versions(site, "pi-01", "pi-02") == ["2.0"] * 2
    site.devices["pi-03"].link.heal()
    site.unattend()


def test_a_package_that_fails_needs_repair_and_stops_the_next_wave(site: FleetSite) -> None:
    offer(site, "pi-02", "pi-03")
    offer(site, "pi-01", scripts={"postinst": script("exit 1")})
    run = site("upgrade", "start", "--all", "--deadline", "5m", *BOUNDS, code=1).json
    site.unattend()
    assert states(run) == {"pi-01": "repair-required", "pi-02": "succeeded", "pi-03": "skipped"}
    assert (run["phase"], run["targets"][2]["reason"]) == ("Failed", "EarlierWaveFailed")
    assert (versions(site, "pi-02", "pi-03"), site.upgrading["pi-01"].state("harmony-sample")) == (
        ["2.0", "1.0"],
        "iF",
    )
    assert (site.upgrading["pi-03"].upgrades(), site.reboots["pi-03"]) == (0, 0)


def test_killed_at_ten_points_and_resumed_no_attempt_is_doubled(site: FleetSite) -> None:
    offer(site, *NAMES)
    site("upgrade", "start", "--all", "--deadline", "5m", "--canary", "1", *BOUNDS, "--no-watch")
    uid = _uid(site)
    kills = 0
    for wait in (0.9, 1.0, 1.2, 1.4, 1.6, 1.8, 2.0, 2.3, 2.6, 3.0):
        process = site.start("upgrade", "watch", uid)
        time.sleep(wait)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        site.ended(process)
    run = site("upgrade", "watch", uid, "-o", "json").json
    site.unattend()
    assert (run["phase"], set(states(run).values()), kills >= 8) == (
        "Succeeded",
        {"succeeded"},
        True,
    )
    assert [one.upgrades() for one in site.upgrading.values()] == [1, 1, 1]
    assert site.reboots == dict.fromkeys(NAMES, 1)
    assert versions(site, *NAMES) == ["2.0"] * 3


def _uid(site: FleetSite) -> str:
    [run] = site("upgrade", "list", "-o", "json").json
    return str(run["run_uid"])
