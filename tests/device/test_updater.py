"""The updater as it is installed, on a real Debian: an upgrade from a signed repository, and what
can come between.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.device.aptrepo import Package
from tests.device.lab import Lab
from tests.device.prepare import USER
from tests.device.upgrades import (
    APT_UNIT,
    JOURNALS,
    PI,
    SOCKET,
    UNITS,
    Upgrading,
    names,
    sample,
    script,
)

Make = Callable[..., Upgrading]


@pytest.fixture
def make(lab: Lab, suite: str) -> Iterator[Make]:
    """Makes a device with the updater, and the sample installed in its first version."""
    made: list[Upgrading] = []

    def site(*installed: Package, durable: bool = False, **settings: Any) -> Upgrading:
        device = lab.device(suite, durable=durable)
        made.append(Upgrading(device, lab.folder / f"apt-{device.name}", **settings))
        made[-1].has(*(installed or (sample("1.0"),)))
        return made[-1]

    yield site
    for one in made:
        one.close()
        one.device.close()


def test_an_upgrade_reboots_and_ends_complete_with_the_lists_right(make: Make) -> None:
    site = make(sample("1.0"), Package("harmony-old", "1.0"), Package("harmony-held", "1.0"))
    site.device.run(["apt-mark", "hold", "harmony-held"])
    new = {"Depends": "harmony-new", "Conflicts": "harmony-old"}
    site.offers(
        sample("2.0", fields=new), Package("harmony-new", "0.5"), Package("harmony-held", "2.0")
    )
    before = site.device.boot_id()
    assert site.say(op="capabilities")["status"] == {
        "protocol": 1,
        "operations": ["AptFullUpgradeV1"],
    }
    assert site.ask()["status"]["phase"] == "preflight"
    assert site.ask()["ok"]  # delivered twice while it runs
    assert site.ask(run="run-2")["error"]["code"] == "attempt-conflict"
    site.reboots()
    status = site.await_phase()
    assert status["phase"] == "complete"
    assert (status["bootIdBefore"], status["bootIdAfter"]) == (before, site.device.boot_id())
    assert status["result"] == {
        "upgraded": ["harmony-sample (1.0 => 2.0)"],
        "installed": ["harmony-new (0.5)"],
        "removed": ["harmony-old (1.0)"],
        "held": ["harmony-held"],
        "keptConffiles": [],
        "dpkgAudit": [],
    }
    assert (site.version("harmony-sample"), site.version("harmony-held"), site.upgrades()) == (
        "2.0",
        "1.0",
        1,
    )
    assert "Setting up harmony-sample (2.0)" in site.log()
    # Delivered again, also to an updater that has started again: the same result, and nothing is
    # done.
    for _ in range(2):
        assert site.ask()["status"] == status
        site.restart()
    assert site.upgrades() == 1
    assert site.record()["rebootsAsked"] == 1
    assert site.cli("status")[0] == 0
    assert site.cli("version")[0] == 0
    # The next attempt can come.
    site.offers(sample("3.0"))
    assert site.ask(attempt="attempt-2")["status"]["phase"] == "preflight"
    site.reboots()
    assert site.await_phase(attempt="attempt-2")["phase"] == "complete"
    assert site.version("harmony-sample") == "3.0"


_ASK = """
import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10)
try:
    s.connect(sys.argv[1]); s.sendall(b'{"v":1,"op":"capabilities"}\\n'); print(s.makefile().readline())
except OSError as error:
    print(json.dumps({"error": {"code": type(error).__name__}}))
"""


def test_the_agent_s_user_is_admitted_and_another_is_not(make: Make) -> None:
    device = make().device
    shown = device.run(["stat", "--printf", "%a %U %G", SOCKET]).stdout
    assert shown == f"660 root {USER}"

    def told(*setpriv: str) -> dict[str, Any]:
        return dict(
            json.loads(device.run(["setpriv", *setpriv, "python3", "-c", _ASK, SOCKET]).stdout)
        )

    gid = device.run(["id", "--group", USER]).stdout.strip()
    assert json.loads(device.run(["python3", "-c", _ASK, SOCKET], user=USER).stdout)["ok"]
    assert told("--reuid=65534", "--regid=65534", f"--groups={gid}")["ok"]
    assert (
        told("--reuid=65534", "--regid=65534", "--clear-groups")["error"]["code"]
        == "PermissionError"
    )
    device.run(["chmod", "0666", SOCKET])  # were the file's mode not there
    assert told("--reuid=65534", "--regid=65534", "--clear-groups")["error"]["code"] in {
        "forbidden",
        "BrokenPipeError",
    }


def test_it_is_hardened(make: Make) -> None:
    device = make().device
    said = device.run(["systemd-analyze", "security", "--no-pager", UNITS[1]]).stdout
    exposure = float(said.rsplit("Overall exposure level for", 1)[1].split(":")[1].split()[0])
    assert exposure < 3.0, said
    pid = device.run(
        ["systemctl", "show", "--property=MainPID", "--value", UNITS[1]]
    ).stdout.strip()
    status = device.read_text(f"/proc/{pid}/status")
    assert int(status.split("CapEff:")[1].split()[0], 16) == 1 << 2  # CAP_DAC_READ_SEARCH
    assert "NoNewPrivs:\t1" in status


def test_a_postinst_that_restarts_the_updater_the_agent_and_dbus_does_not_cut_apt(
    make: Make,
) -> None:
    site = make()
    site.device.write(
        "/etc/systemd/system/agent-like.service", "[Service]\nExecStart=/bin/sleep infinity\n"
    )
    site.device.systemctl("daemon-reload")
    site.device.systemctl("start", "agent-like.service")
    postinst = script(
        f"systemctl restart {UNITS[1]} agent-like.service",
        "sleep 0.3",
        "systemctl restart dbus.service",
        "sleep 0.5",
    )
    site.offers(sample("2.0", scripts={"postinst": postinst}), Package("harmony-last", "1.0"))
    site.ask()
    site.reboots()
    status = site.await_phase()
    assert (status["phase"], names(status["result"]["upgraded"])) == (
        "complete",
        ["harmony-sample"],
    )
    assert site.upgrades() == 1
    assert (
        sum(
            "Started harmony-updater.service" in said
            for said in site.device.messages(unit=UNITS[1])
        )
        >= 3
    )


def test_an_updater_that_is_killed_waits_for_the_apt_that_still_runs(make: Make) -> None:
    site = make()
    site.offers(sample("2.0", scripts={"postinst": script("sleep 3")}))
    site.ask()
    site.await_phase("applying")
    site.wait_for(lambda: site.device.exists(f"{JOURNALS}/attempt-1.exit"))
    for _ in range(3):
        site.device.systemctl("kill", "--signal=KILL", UNITS[1])
        time.sleep(0.3)
        site.device.systemctl("reset-failed", UNITS[1])
        site.device.systemctl("start", UNITS[1])
    assert site.await_phase("applying")["phase"] == "applying"
    site.reboots()
    assert site.await_phase()["phase"] == "complete"
    assert site.upgrades() == 1


def test_expiry_before_it_starts(make: Make) -> None:
    site = make()
    site.offers(sample("2.0"))
    assert site.ask(expires="2020-01-01T00:00:00Z")["error"]["code"] == "expired"
    assert site.status() == {}
    pid = site.holder("/var/lib/dpkg/lock-frontend")
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 4))
    assert site.ask(expires=soon)["ok"]
    blocked = site.await_phase("blocked")
    assert f"pid {pid}" in blocked["message"]
    ended = site.await_phase(seconds=15)
    assert (ended["phase"], ended["reason"], site.version("harmony-sample")) == (
        "failed",
        "Expired",
        "1.0",
    )


def test_expiry_after_apt_has_begun_interrupts_nothing(make: Make) -> None:
    site = make()
    site.offers(sample("2.0", scripts={"postinst": script("sleep 6")}))
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    assert site.ask(expires=soon)["ok"]
    site.await_phase("applying")
    site.reboots()
    assert site.await_phase()["phase"] == "complete"
    assert time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > soon
    assert site.ask(expires=soon)["status"]["phase"] == "complete"


def test_an_edited_conffile_stays_and_a_question_is_not_asked(make: Make) -> None:
    conffiles = ["/etc/harmony-sample.conf", "/etc/harmony-other.conf"]
    first = sample("1.0", files=dict.fromkeys(conffiles, "one\n"), conffiles=conffiles)
    site = make(first)
    site.device.write("/etc/harmony-sample.conf", "mine\n")
    # Whoever prefers the package's version in dpkg's own configuration doesn't get it from here.
    site.device.write("/etc/dpkg/dpkg.cfg.d/new", "force-confnew\n")
    ask = script(
        ". /usr/share/debconf/confmodule",
        "db_input critical harmony-sample/which || true",
        "db_go || true",
    )
    template = "Template: harmony-sample/which\nType: select\nChoices: a, b\nDescription: which?\n"
    stdin = script("read -r answer && echo 'GOT AN ANSWER' || echo 'NO STDIN'")
    files = dict.fromkeys(conffiles, "two\n") | {"/DEBIAN/templates": template}
    site.offers(
        sample(
            "2.0",
            files=files,
            conffiles=conffiles,
            scripts={"config": ask, "postinst": ask, "preinst": stdin},
        )
    )
    site.ask()
    site.reboots()
    status = site.await_phase()
    assert (status["phase"], status["result"]["keptConffiles"]) == (
        "complete",
        ["/etc/harmony-sample.conf"],
    )
    assert site.device.read_text("/etc/harmony-sample.conf") == "mine\n"
    assert site.device.read_text("/etc/harmony-other.conf") == "two\n"
    assert "NO STDIN" in site.log()


def test_where_nothing_is_to_be_upgraded_nothing_is_rebooted(make: Make) -> None:
    site = make()
    boot = site.device.boot_id()
    site.ask()
    status = site.await_phase()
    assert (status["phase"], status["reason"], status["bootIdAfter"]) == (
        "complete",
        "NothingToUpgrade",
        None,
    )
    assert names(status["result"]["upgraded"]) == []
    site.device.write("/run/reboot-required", "")
    site.ask(attempt="attempt-2")
    site.reboots()
    assert site.await_phase(attempt="attempt-2")["phase"] == "complete"
    assert site.device.boot_id() != boot


_RUINOUS = """
APT::Get::Simulate "true"; APT::Get::Download-Only "true"; APT::Get::Print-URIs "true"; APT::Get::Only-Upgrade "true";
APT::Get::Allow-Downgrades "true"; Acquire::Check-Valid-Until "false"; DPkg::Options:: "--force-confnew";
DPkg::Pre-Invoke { "touch /srv/ran"; }; DPkg::Post-Invoke:: "touch /srv/ran"; DPkg::Pre-Install-Pkgs:: "touch /srv/ran";
APT::Update::Pre-Invoke:: "touch /srv/ran"; APT::Update::Post-Invoke-Success:: "touch /srv/ran";
"""
_EVIL = 'Dir::Bin::methods::gpgv "/srv/good"; Dir::Bin::methods::sqv "/srv/good"; Dir::Bin::apt-key "/srv/good";'


def test_what_the_device_has_that_could_spoil_it_has_no_effect(make: Make) -> None:
    site = make()
    run = "#!/bin/sh\ntouch /srv/ran\nexit 1\n"
    for name in ("/usr/local/bin/gpgv", "/usr/local/bin/sqv", "/usr/local/sbin/dpkg", "/srv/good"):
        site.device.write(name, run)
        site.device.run(["chmod", "0755", name])
    site.device.write("/srv/evil.conf", _EVIL + 'Acquire::AllowInsecureRepositories "1";')
    variables = [
        "APT_CONFIG=/srv/evil.conf",
        "LD_PRELOAD=/srv/evil.so",
        "PATH=/usr/local/bin:/usr/bin",
        "SOMETHING=x",
    ]
    site.device.systemctl("set-environment", *variables)
    site.restart()
    site.device.write("/etc/apt/apt.conf.d/99x", _RUINOUS)
    postinst = script("env >/srv/environment")
    site.offers(
        sample("2.0", scripts={"postinst": postinst}, fields={"Depends": "harmony-new"}),
        Package("harmony-new", "1"),
    )
    site.ask()
    site.reboots()
    assert site.await_phase()["phase"] == "complete"
    assert (site.version("harmony-sample"), site.version("harmony-new")) == ("2.0", "1")
    assert not site.device.exists("/srv/ran")
    environment = site.device.read_text("/srv/environment")
    assert not any(
        word in environment for word in ("APT_CONFIG", "LD_PRELOAD", "SOMETHING", "/usr/local")
    )


_DRIP = """
import socket, time
peers = []
for _ in range(16):
    peers.append(socket.socket(socket.AF_UNIX))
    peers[-1].connect("/run/harmony-updater/updater.sock")
print("ready", flush=True)
while True:
    for peer in peers:
        try: peer.send(b" ")
        except OSError: pass
    time.sleep(1)
"""


def test_a_workload_that_keeps_connections_busy_keeps_nobody_out(make: Make) -> None:
    site = make()
    unit = ["systemd-run", "--quiet", "--unit=drip", f"--uid={USER}", "python3", "-c", _DRIP]
    site.device.run(unit)
    site.wait_for(lambda: "ready" in site.device.messages(unit="drip.service"))
    for _ in range(30):
        since = time.monotonic()
        assert site.say(op="capabilities")["ok"]
        assert json.loads(site.device.run(["python3", "-c", _ASK, SOCKET], user=USER).stdout)["ok"]
        assert time.monotonic() - since < 5


def test_a_workload_has_a_bounded_number_of_attempts_accepted_and_reboots_nothing(
    make: Make,
) -> None:
    site = make(attempts_per_hour=3)
    boot, accepted = site.device.boot_id(), []
    for number in range(40):
        answer = site.ask(attempt=f"attempt-{number}")
        if answer["status"]["phase"] == "preflight":
            accepted.append(number)
            site.await_phase(attempt=f"attempt-{number}")
    assert len(accepted) == 3
    status = site.ask(attempt="attempt-more")["status"]
    assert (status["phase"], status["reason"]) == ("blocked", "TooManyAttempts")
    assert len(site.device.run(["ls", JOURNALS]).stdout.split(".json")) == 4
    assert site.device.boot_id() == boot


def test_what_apt_did_not_do_though_it_ended_well_has_failed(make: Make) -> None:
    site = make()
    site.device.run(["dpkg-divert", "--local", "--rename", "--add", "/usr/bin/dpkg"])
    broken = '#!/bin/sh\ncase "$*" in *--unpack*|*--configure*) exit 0;; esac\nexec /usr/bin/dpkg.distrib "$@"\n'
    site.device.write("/usr/bin/dpkg", broken)
    site.device.run(["chmod", "0755", "/usr/bin/dpkg"])
    site.offers(sample("2.0"))
    site.ask()
    status = site.await_phase()
    assert (status["phase"], status["reason"], site.version("harmony-sample")) == (
        "failed",
        "UpgradeIncomplete",
        "1.0",
    )
    assert "harmony-sample is 1.0, planned was 2.0" in status["message"]


def test_a_postinst_that_fails_needs_repair_until_an_operator_has_repaired(make: Make) -> None:
    site = make()
    site.offers(sample("2.0", scripts={"postinst": script("exit 7")}))
    boot = site.device.boot_id()
    site.ask()
    status = site.await_phase()
    assert (status["phase"], status["reason"]) == ("repair-required", "PackagesUnhealthy")
    assert any("harmony-sample" in line for line in status["result"]["dpkgAudit"])
    assert names(status["result"]["upgraded"]) == ["harmony-sample"]
    assert site.state("harmony-sample") == "iF"
    assert site.ask(attempt="attempt-2")["error"]["code"] == "repair-required"
    assert site.cli("status")[0] == 1
    code, said = site.cli("clear-repair")
    assert (code, "harmony-sample" in said) == (5, True)
    site.restart()
    assert site.ask()["status"] == status
    assert site.ask(attempt="attempt-2")["error"]["code"] == "repair-required"
    site.offers(sample("3.0"))
    site.apt("update")
    site.apt("full-upgrade")
    assert site.cli("clear-repair")[0] == 0
    assert site.cli("status")[0] == 0
    assert site.ask()["status"]["phase"] == "repair-required"  # its own result stays
    site.offers(sample("4.0"))
    assert site.ask(attempt="attempt-2")["status"]["phase"] == "preflight"
    assert site.device.boot_id() == boot
    site.reboots()
    assert site.await_phase(attempt="attempt-2")["phase"] == "complete"


def test_apt_that_fails_and_leaves_the_packages_healthy_has_failed(make: Make) -> None:
    site = make()
    site.offers(sample("2.0", scripts={"preinst": script("exit 7")}))
    site.ask()
    status = site.await_phase()
    assert (status["phase"], status["reason"]) == ("failed", "UpgradeFailed")
    assert status["result"]["upgraded"] == []
    assert (site.state("harmony-sample"), site.version("harmony-sample")) == ("ii", "1.0")
    assert "/usr/bin/dpkg returned an error code" in status["message"]


@pytest.mark.parametrize(("moment", "state"), [("preinst", "iH"), ("postinst", "iF")])
def test_apt_killed_while_unpacking_or_configuring_is_never_run_again(
    make: Make, moment: str, state: str
) -> None:
    site = make()
    site.offers(sample("2.0", scripts={moment: script("sleep 60")}))
    site.ask()
    site.wait_for(
        lambda: site.processes("dpkg/", moment) or site.processes(f"harmony-sample.{moment}")
    )
    site.device.systemctl("kill", "--signal=KILL", "--kill-whom=all", APT_UNIT)
    status = site.await_phase()
    assert status["phase"] == "repair-required"
    assert site.state("harmony-sample")[:2] in {state, "ii"}
    for _ in range(2):
        site.restart()
        assert site.ask()["status"] == status
    assert site.upgrades() == 1


def test_a_reboot_while_applying_needs_repair_and_no_reboot_loop(make: Make) -> None:
    site = make()
    site.offers(sample("2.0", scripts={"postinst": script("sleep 60")}))
    site.ask()
    site.wait_for(lambda: site.processes("harmony-sample.postinst"))
    site.device.kill()
    site.device.boot()
    status = site.await_phase()
    assert (status["phase"], status["reason"]) == ("repair-required", "Interrupted")
    assert any("harmony-sample" in line for line in status["result"]["dpkgAudit"])
    boot = site.device.boot_id()
    time.sleep(3)
    assert (site.device.boot_id(), site.upgrades(), site.record()["rebootsAsked"]) == (boot, 1, 0)


def test_a_power_cut_while_applying_loses_no_journal(make: Make) -> None:
    site = make(durable=True)
    site.offers(sample("2.0", scripts={"postinst": script("sleep 60")}))
    site.device.run(["sync"])  # what the test itself wrote
    site.ask()
    site.wait_for(lambda: site.processes("harmony-sample.postinst"))
    site.device.power_cut()
    status = site.await_phase()
    assert (status["phase"], status["reason"]) == ("repair-required", "Interrupted")
    assert site.ask(attempt="attempt-2")["error"]["code"] == "repair-required"


def test_a_power_cut_right_after_the_answer_loses_no_attempt(make: Make) -> None:
    site = make(durable=True)
    site.device.write(
        "/etc/tmpfiles.d/synchronised.conf", ""
    )  # the clock isn't synchronised after the cut
    site.offers(sample("2.0"))
    site.device.run(["sync"])
    assert site.ask()["ok"]
    site.device.power_cut()
    assert site.await_phase("blocked", "preflight", "repair-required")["phase"] in {
        "blocked",
        "preflight",
        "repair-required",
    }


def test_a_reboot_that_does_not_happen_is_asked_for_a_bounded_number_of_times(make: Make) -> None:
    site = make(reboot_tries=2, reboot_wait_seconds=3)
    site.device.systemctl("mask", "reboot.target")
    site.offers(sample("2.0"))
    site.ask()
    site.await_phase("rebooting")
    asked = site.wait_for(lambda: site.record()["rebootsAsked"])
    for _ in range(2):  # an updater that restarts asks no more often
        site.restart()
        assert site.record()["rebootsAsked"] == asked == 1
    status = site.await_phase(seconds=60)
    assert (status["phase"], status["reason"], status["bootIdAfter"]) == (
        "failed",
        "RebootFailed",
        None,
    )
    assert site.record()["rebootsAsked"] == 2
    assert sum("reboot: (" in said for said in site.device.messages(unit=UNITS[1])) == 2
    assert names(status["result"]["upgraded"]) == ["harmony-sample"]


def test_a_boot_id_that_cannot_be_read_is_no_reboot(make: Make) -> None:
    site = make(reboot_tries=1, reboot_wait_seconds=2)
    site.device.systemctl("mask", "reboot.target")
    site.offers(sample("2.0"))
    drop_in = f"/etc/systemd/system/{UNITS[1]}.d/hide.conf"

    def hide(hidden: bool) -> None:
        setting = "[Service]\nTemporaryFileSystem=/proc/sys/kernel/random:ro\n" if hidden else ""
        site.device.write(drop_in, setting)
        site.device.systemctl("daemon-reload")
        site.restart()

    hide(True)
    site.ask()
    status = site.await_phase()
    assert (status["phase"], status["reason"], site.version("harmony-sample")) == (
        "failed",
        "BootIdUnreadable",
        "1.0",
    )
    hide(False)
    site.ask(attempt="attempt-2")
    site.await_phase("rebooting", attempt="attempt-2")
    hide(True)
    status = site.await_phase(attempt="attempt-2")
    assert (status["phase"], status["reason"]) == ("failed", "RebootFailed")


def test_two_active_journals_or_a_corrupt_one_keep_it_from_starting_and_are_named(
    make: Make,
) -> None:
    site = make()
    site.device.systemctl("stop", *UNITS)
    site.device.write(f"{JOURNALS}/broken.json", "{")
    code, said = site.cli("serve")
    assert (code, f"{JOURNALS}/broken.json" in said) == (2, True)
    site.device.systemctl("start", UNITS[1])
    site.wait_for(lambda: site.device.systemctl("is-failed", UNITS[1], check=False).rc == 0)
    time.sleep(3)  # RestartSec has passed
    assert site.device.systemctl("is-failed", UNITS[1], check=False).rc == 0
    site.device.remove(f"{JOURNALS}/broken.json")
    one = {
        "attemptId": "",
        "runUid": "r",
        "deviceId": PI,
        "phase": "preflight",
        "expiresAt": "2999-01-01T00:00:00Z",
    }
    for name in ("one", "two"):
        site.device.write(f"{JOURNALS}/{name}.json", json.dumps(one | {"attemptId": name}))
    code, said = site.cli("serve")
    assert (code, "one.json" in said, "two.json" in said) == (2, True, True)
