"""SystemUpgrade end to end: agent and updater as installed services, real apt, a signed repository,
a real reboot.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from nats.js.errors import NotFoundError

from scores import DeploymentStatus, Manifest, SystemUpgrade
from scores.keys import INFO, info_key
from scores.status import DeviceInfo, UpgradeDetail
from tests.device.aptrepo import Package
from tests.device.control import Control
from tests.device.image import SUITES
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.upgrades import LATER, PI, UNITS, Upgrading

CONFIG = {
    "agent": {"device_id": PI, "kinds": ["SystemUpgrade"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
}
KEY = "SystemUpgrade/os"


@dataclass
class Site:
    """A device that can be upgraded, and its control plane."""

    device: Device
    control: Control
    upgrading: Upgrading

    def want(self, attempt: str, expires: str = LATER) -> None:
        score = SystemUpgrade(name="os", attempt_id=attempt, run_uid="run-1", expires_at=expires)
        self.control.apply(PI, Manifest(deployment="upgrade", scores=[score]))

    def until(self, phase: str, seconds: float = 60) -> DeploymentStatus:
        return self.control.until(
            PI, "upgrade", lambda s: KEY in s.resources and s.resources[KEY].phase == phase, seconds
        )

    def detail(self, status: DeploymentStatus) -> UpgradeDetail:
        found = status.resources[KEY].status
        assert isinstance(found, UpgradeDetail)
        return found


@pytest.fixture(params=SUITES)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    lan = lab.lan()
    device = lab.device(request.param, lan)
    with tempfile.TemporaryDirectory(prefix="hu-") as folder, Control(lan.nats.host_url) as control:
        upgrading = Upgrading(device, Path(folder) / "apt")
        upgrading.has(
            Package("harmony-sample", "1.0", {"/usr/share/harmony-sample/version": "1.0\n"})
        )
        device.agent.install(CONFIG, service_type="notify")
        yield Site(device, control, upgrading)
    device.close()
    lan.close()


def test_a_manifest_moves_a_package_reboots_and_ends_completed(site: Site):
    before = site.device.boot_id()
    site.upgrading.offers(
        Package("harmony-sample", "2.0", {"/usr/share/harmony-sample/version": "2.0\n"})
    )
    site.want("attempt-1")
    site.upgrading.reboots()

    status = site.until("Completed")
    detail = site.detail(status)
    assert site.upgrading.version("harmony-sample") == "2.0"
    assert site.device.boot_id() != before
    assert status.phase == "Converged"
    assert (detail.phase, detail.attemptId, detail.deviceId) == ("complete", "attempt-1", PI)
    assert (detail.bootIdBefore, detail.bootIdAfter) == (before, site.device.boot_id())
    assert detail.result is not None
    assert list(detail.result.upgraded) == ["harmony-sample (1.0 => 2.0)"]
    assert (list(detail.result.removed), list(detail.result.dpkgAudit)) == ([], [])

    # The same manifest again, after restarts of both: nothing runs twice.
    site.upgrading.restart()
    site.device.agent.restart()
    boot = site.device.boot_id()
    site.control.resync(PI)
    assert site.until("Completed").resources[KEY].phase == "Completed"
    assert site.device.boot_id() == boot


def test_the_device_tells_what_its_updater_offers(site: Site):
    info = told(site.control)
    assert info.capabilities.updater is not None
    assert (info.capabilities.updater.protocol, list(info.capabilities.updater.operations)) == (
        1,
        ["AptFullUpgradeV1"],
    )


def told(control: Control, seconds: float = 20) -> DeviceInfo:
    """What the device tells of itself, once it did."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            entry = control.do(
                control.jetstream.get_last_msg(f"KV_{INFO}", f"$KV.{INFO}.{info_key(PI)}")
            )
            return DeviceInfo.model_validate_json(entry.data or b"")
        except NotFoundError:
            assert time.monotonic() < deadline, "the device told nothing of itself"
            time.sleep(0.05)


def test_without_its_score_an_active_upgrade_ends_and_is_reported(site: Site):
    script = "#!/bin/sh\nwhile [ ! -e /run/go-on ]; do sleep 0.1; done\n"
    site.upgrading.offers(Package("harmony-sample", "2.0", scripts={"postinst": script}))
    site.want("attempt-1")
    site.control.until(
        PI,
        "upgrade",
        lambda s: s.resources.get(KEY) and s.resources[KEY].reason == "UpgradeApplying",
        60,
    )
    site.control.apply(PI, Manifest(deployment="upgrade", removed=True))
    removing = site.control.until(PI, "upgrade", lambda s: s.phase == "Removing", 20)
    assert site.detail(removing).phase == "applying"

    site.device.write("/run/go-on", "")
    site.upgrading.reboots()
    assert site.detail(site.until("Completed")).phase == "complete"
    site.control.until(PI, "upgrade", lambda s: s.phase == "Removed", 40)
    assert site.upgrading.version("harmony-sample") == "2.0"


def test_a_failing_package_is_repair_required_and_terminal(site: Site):
    site.upgrading.offers(
        Package("harmony-sample", "2.0", scripts={"postinst": "#!/bin/sh\nexit 1\n"})
    )
    site.want("attempt-1")
    status = site.until("Failed")
    assert status.phase == "Failed"
    assert status.resources[KEY].reason == "RepairRequired"
    assert site.detail(status).phase == "repair-required"
    assert site.device.running


def test_no_updater_is_blocked_and_goes_on_when_it_is_there(site: Site):
    site.device.systemctl("stop", *UNITS)
    site.upgrading.offers(Package("harmony-sample", "2.0"))
    site.want("attempt-1")
    status = site.until("Blocked")
    assert status.resources[KEY].reason == "UpdaterUnavailable"
    site.device.systemctl("start", UNITS[0])
    site.upgrading.reboots()
    site.until("Completed")


def test_an_attempt_that_expired_is_failed_and_touches_nothing(site: Site):
    site.upgrading.offers(Package("harmony-sample", "2.0"))
    site.want("attempt-1", "2020-01-01T00:00:00Z")
    status = site.until("Failed")
    assert status.resources[KEY].reason == "UpgradeExpired"
    assert site.upgrading.version("harmony-sample") == "1.0"
