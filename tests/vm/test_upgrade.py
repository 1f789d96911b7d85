"""SystemUpgrade on a machine with a kernel of its own: real apt, a signed repository, and a reboot
that is one.
"""

import json
import re
import time
import uuid
from collections.abc import Sequence

from scores import DeploymentStatus, File, Manifest, SystemUpgrade
from scores.status import UpgradeDetail
from tests.device.aptrepo import Package
from tests.device.control import Control
from tests.device.upgrades import LATER, PI, UNITS
from tests.vm.services import Served

KEY, ATTEMPT = "SystemUpgrade/os", "attempt-vm"
CONFFILE, EDITED = "/etc/harmony-sample.conf", "edited = yes\n"
SECONDS = 400


def sample(version: str, fields: dict[str, str]) -> Package:
    """The package that is upgraded, with a conffile that differs in every version."""
    files = {
        "/usr/share/harmony-sample/version": f"{version}\n",
        CONFFILE: f"version = {version}\n",
    }
    return Package("harmony-sample", version, files, conffiles=[CONFFILE], fields=fields)


def first() -> list[Package]:
    """What is installed."""
    return [sample("1.0", {}), Package("harmony-old", "1.0"), Package("harmony-kept", "1.0")]


def second() -> list[Package]:
    """What is offered: it brings one more, drives one out, and one is on hold."""
    fields = {"Depends": "harmony-new", "Conflicts": "harmony-old"}
    return [sample("2.0", fields), Package("harmony-new", "1.0"), Package("harmony-kept", "2.0")]


class Diary:
    """What `actual-state` showed, one line a change, with the seconds since it began."""

    def __init__(self) -> None:
        self.begun, self.lines, self.phases = time.monotonic(), list[str](), list[str]()

    def note(self, status: DeploymentStatus) -> bool:
        """Note it if it is new; whether it is the end."""
        resource = status.resources.get(KEY)
        if resource is None:
            return False
        detail = resource.status
        said = detail.phase if isinstance(detail, UpgradeDetail) else "-"
        boots = (
            [str(boot)[:8] for boot in (detail.bootIdBefore, detail.bootIdAfter)]
            if isinstance(detail, UpgradeDetail)
            else []
        )
        line = f"{status.phase} {resource.phase}/{resource.reason} updater: {said} boots: {boots}"
        if not self.lines or not self.lines[-1].endswith(line):
            self.lines.append(f"{time.monotonic() - self.begun:6.1f} s  {line}")
            print(self.lines[-1], flush=True)
        if said not in {"-", *self.phases[-1:]}:
            self.phases.append(said)
        return resource.phase in {"Completed", "Failed"}

    def keep_while_it_runs(self, served: Served, control: Control) -> None:
        """Note what is shown until the machine is off."""
        while served.vm.running:
            assert time.monotonic() - self.begun < SECONDS, f"it doesn't reboot: {self.lines}"
            status = control.status(PI, "upgrade")
            if status is not None:
                assert not self.note(status), f"it ended without a reboot: {status}"
            time.sleep(0.1)


def in_order(seen: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether all that was seen is of the wanted, in that order; a short phase may pass between two
    looks.
    """
    places = [wanted.index(phase) for phase in seen]
    return places == sorted(places)


def phases_by_boot(served: Served) -> dict[str, list[str]]:
    """What the updater noted in the system's journal that it entered, boot by boot."""
    found: dict[str, list[str]] = {}
    for entry in served.vm.journal(unit=UNITS[1]):
        said = re.search(rf"{ATTEMPT}: .*'phase': '([a-z-]+)'", str(entry["MESSAGE"]))
        if said:
            print(f"boot {entry['_BOOT_ID']}: {entry['MESSAGE']}", flush=True)
            found.setdefault(str(uuid.UUID(entry["_BOOT_ID"])), []).append(said[1])
    return found


def test_a_manifest_upgrades_the_machine_through_a_reboot(served: Served, control: Control) -> None:
    served.has(*first())
    served.vm.write(CONFFILE, EDITED)
    served.vm.run(["apt-mark", "hold", "harmony-kept"])
    served.offers(*second())
    before, machine = served.vm.boot_id(), served.vm.read("/etc/machine-id")
    beside = File(name="beside", path="/srv/beside", content="kept\n")
    score = SystemUpgrade(name="os", attempt_id=ATTEMPT, run_uid="run-vm", expires_at=LATER)

    diary = Diary()
    control.apply(PI, Manifest(deployment="upgrade", scores=[beside, score]))
    diary.keep_while_it_runs(served, control)
    served.vm.await_reboot(SECONDS)
    status = control.until(PI, "upgrade", diary.note, SECONDS)

    after = served.vm.boot_id()
    assert before != after
    assert served.vm.read("/etc/machine-id") == machine
    assert in_order(
        diary.phases, ["blocked", "preflight", "applying", "rebooting", "verifying", "complete"]
    )
    assert (status.phase, status.resources[KEY].phase) == ("Converged", "Completed")
    assert status.resources["File/beside"].phase == "Ready"
    detail = status.resources[KEY].status
    assert isinstance(detail, UpgradeDetail)
    assert (detail.phase, detail.bootIdBefore, detail.bootIdAfter) == ("complete", before, after)
    assert detail.result is not None
    assert detail.result.model_dump(mode="json") == {
        "upgraded": ["harmony-sample (1.0 => 2.0)"],
        "installed": ["harmony-new (1.0)"],
        "removed": ["harmony-old (1.0)"],
        "held": ["harmony-kept"],
        "keptConffiles": [CONFFILE],
        "dpkgAudit": [],
    }
    print(f"result: {json.dumps(detail.result.model_dump(mode='json'))}")
    assert phases_by_boot(served) == {
        before: [
            "applying",
            "rebooting",
            "rebooting",
        ],  # once to be in it, once to count the request
        after: ["verifying", "complete"],
    }

    assert [served.version(f"harmony-{name}") for name in ("sample", "new", "old", "kept")] == [
        "2.0",
        "1.0",
        "",
        "1.0",
    ]
    assert served.vm.read_text("/usr/share/harmony-sample/version") == "2.0\n"
    assert served.vm.read_text(CONFFILE) == EDITED
    assert served.vm.run(["dpkg", "--audit"]).stdout == ""
    assert served.upgrades() == 1
    assert served.cli("status")[0] == 0


def test_nothing_runs_twice_when_both_start_anew(served: Served, control: Control) -> None:
    status = control.status(PI, "upgrade")
    assert status is not None
    assert status.resources[KEY].phase == "Completed", "the upgrade before has to end well"
    boot = served.vm.boot_id()
    served.vm.systemctl("restart", *UNITS)
    served.vm.agent.restart()
    control.resync(PI, timeout=60)
    control.wait(PI, "upgrade", timeout=60)
    assert (served.upgrades(), served.vm.boot_id()) == (1, boot)
