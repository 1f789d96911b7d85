"""A device with the root updater installed as its units say, and a signed repository to upgrade
from.

    site = Upgrading(device, folder)
    site.has(Package("harmony-sample", "1.0"))
    site.offers(Package("harmony-sample", "2.0"))
    site.ask()
    site.await_phase("rebooting")

Must not know how the updater does it: it speaks to the socket and reads what stands on the device.
"""

import json
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.device.aptrepo import Package, Repository
from tests.device.machine import Device
from tests.device.storage import REPOSITORY
from tests.device.tools import HarnessError

FILES = REPOSITORY / "deploy/deb/harmony-updater/files/usr/lib"
SOCKET = "/run/harmony-updater/updater.sock"
JOURNALS = "/var/lib/harmony-fleet-updater/system-upgrades"
UNITS = ("harmony-updater.socket", "harmony-updater.service")
APT_UNIT = "harmony-updater-apt.service"
SYNCHRONISED = "/run/systemd/timesync/synchronized"
PI = "pi-01"
LATER = "2999-01-01T00:00:00Z"
ENDS = {"complete", "failed", "repair-required"}
SETTINGS = {
    "device_id": PI,
    "attempts_per_hour": 3600,
    "lock_wait_seconds": 600,
    "reboot_tries": 3,
    "reboot_wait_seconds": 600,
}


class Upgrading:
    """One device, its repository, and the socket of its updater."""

    def __init__(self, device: Device, folder: Path, **settings: Any) -> None:
        self.device, self.repository = device, Repository(folder)
        device.run(
            ["ln", "--symbolic", "/usr/local/bin/harmony-updater", "/usr/bin/harmony-updater"]
        )
        for unit in UNITS:
            device.write(
                f"/etc/systemd/system/{unit}", (FILES / "systemd/system" / unit).read_text()
            )
        for kind in ("sysusers.d", "tmpfiles.d"):
            path = f"/etc/{kind}/harmony-updater.conf"
            device.write(path, (FILES / kind / "harmony-updater.conf").read_text())
        device.run(["systemd-sysusers"])
        device.run(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/harmony-updater.conf"])
        self._synchronise()
        self.configure(**settings)
        device.systemctl("daemon-reload")
        device.systemctl("enable", "--quiet", *UNITS)
        device.systemctl("start", *UNITS)

    def _synchronise(self) -> None:
        """As systemd-timesyncd does once it has set the clock; it doesn't run in a container."""
        lines = "d /run/systemd/timesync\nf /run/systemd/timesync/synchronized\n"
        self.device.write("/etc/tmpfiles.d/synchronised.conf", lines)
        self.device.run(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/synchronised.conf"])

    def configure(self, **settings: Any) -> None:
        """Write the configuration; it takes effect at the next start."""
        lines = [f"{key} = {json.dumps(value)}" for key, value in (SETTINGS | settings).items()]
        self.device.write("/etc/harmony/updater.toml", "\n".join([*lines, ""]))

    def restart(self) -> None:
        """Start the updater again."""
        self.device.systemctl("reset-failed", UNITS[1])
        self.device.systemctl("restart", UNITS[1])

    # -- packages

    def has(self, *packages: Package) -> None:
        """Install packages, and let the repository offer them."""
        self.offers(*packages)
        self.apt("update")
        self.apt("install", *(package.name for package in packages))

    def offers(self, *packages: Package) -> None:
        """Let the repository offer packages from now on."""
        self.repository.add(*packages)
        self.repository.give(self.device)

    def apt(self, *argv: str, check: bool = True) -> str:
        """apt-get, as an operator runs it; its output."""
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        return self.device.run(["apt-get", "-q", "-y", *argv], env=env, check=check).stdout

    def version(self, package: str) -> str:
        """The installed version; empty when there is none."""
        shown = self.device.run(["dpkg-query", "-W", "-f=${Version}", package], check=False)
        return shown.stdout if shown.rc == 0 else ""

    def state(self, package: str) -> str:
        """What dpkg makes of the package, as `ii` or `iF`."""
        return self.device.run(
            ["dpkg-query", "-W", "-f=${db:Status-Abbrev}", package]
        ).stdout.strip()

    # -- the socket

    def talk(self, line: bytes, timeout: float = 10) -> bytes:
        """One line to the updater, as root of the device; its answer."""
        path = f"/proc/{self.device.leader}/root{SOCKET}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(timeout)
            peer.connect(path)
            peer.sendall(line)
            with peer.makefile("rb") as lines:
                return lines.readline()

    def say(self, **asked: Any) -> dict[str, Any]:
        """One request; its answer."""
        answer = self.talk(json.dumps({"v": 1, **asked}).encode() + b"\n")
        return dict(json.loads(answer)) if answer else {}

    def ask(
        self, attempt: str = "attempt-1", expires: str = LATER, run: str = "run-1"
    ) -> dict[str, Any]:
        """Ask for an upgrade; the answer."""
        request = {"attemptId": attempt, "runUid": run, "deviceId": PI, "expiresAt": expires}
        return self.say(op="AptFullUpgradeV1", request=request)

    def status(self, attempt: str = "attempt-1") -> dict[str, Any]:
        """How the attempt stands, by the updater's word; empty when it doesn't answer or doesn't
        know it.
        """
        try:
            return dict(self.say(op="status", attemptId=attempt).get("status") or {})
        except OSError:
            return {}

    def until(
        self,
        good: Callable[[dict[str, Any]], bool],
        seconds: float = 30,
        attempt: str = "attempt-1",
    ) -> Any:
        """The first status that is good."""
        deadline, status = time.monotonic() + seconds, {}
        while time.monotonic() < deadline:
            status = self.status(attempt)
            if status and good(status):
                return status
            time.sleep(0.02)
        raise AssertionError(f"not within {seconds:g} s: {status}")

    def await_phase(
        self, *phases: str, seconds: float = 30, attempt: str = "attempt-1"
    ) -> dict[str, Any]:
        """The first status in one of the phases; any end, when none is given."""
        found = self.until(lambda status: status["phase"] in (phases or ENDS), seconds, attempt)
        return dict(found)

    def reboots(self, seconds: float = 60) -> None:
        """Wait until the device reboots of its own accord, and boot it again."""
        self.device.await_reboot(seconds)

    # -- what stands on the device

    def record(self, attempt: str = "attempt-1") -> dict[str, Any]:
        """The attempt's journal."""
        return dict(json.loads(self.device.read(f"{JOURNALS}/{attempt}.json")))

    def log(self, attempt: str = "attempt-1") -> str:
        """apt's own log."""
        return self.device.read_text(f"{JOURNALS}/{attempt}.log")

    def upgrades(self) -> int:
        """How often apt's full-upgrade has been run, by apt's own account."""
        path = "/var/log/apt/history.log"
        if not self.device.exists(path):
            return 0
        return self.device.read_text(path).count("full-upgrade")

    def cli(self, *argv: str) -> tuple[int, str]:
        """The command harmony-updater as an operator runs it: exit code, output."""
        result = self.device.run(["harmony-updater", *argv], check=False)
        return result.rc, result.stdout + result.stderr

    def processes(self, *argv: str) -> list[int]:
        """The ids, on the device, of the processes whose command lines have all these words."""
        shown = self.device.run(["ps", "-eo", "pid=,args="]).stdout.splitlines()
        return [int(line.split()[0]) for line in shown if all(word in line for word in argv)]

    def wait_for(self, what: Callable[[], Any], seconds: float = 30) -> Any:
        """The first truth of `what`."""
        deadline = time.monotonic() + seconds
        while not (found := what()):
            if time.monotonic() > deadline:
                raise HarnessError("it did not come about in time")
            time.sleep(0.02)
        return found

    def holder(self, path: str) -> int:
        """Let a process of the device hold a lock as dpkg and apt do, until it is killed; its
        id.
        """
        code = "import fcntl,sys,time; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(600)"
        self.device.run(
            ["systemd-run", "--quiet", "--unit=lock-holder", "python3", "-c", code, path]
        )
        self.wait_for(lambda: self.device.run(["python3", "-c", _HELD, path], check=False).rc == 1)
        return int(
            self.device.run(
                ["systemctl", "show", "--property=MainPID", "--value", "lock-holder"]
            ).stdout
        )

    def close(self) -> None:
        """Remove the repository from the host."""
        self.repository.close()


_HELD = "import fcntl,sys; fcntl.lockf(open(sys.argv[1],'r+'),fcntl.LOCK_EX|fcntl.LOCK_NB)"


def sample(version: str, **more: Any) -> Package:
    """The package that most tests upgrade."""
    files = {"/usr/share/harmony-sample/version": f"{version}\n", **more.pop("files", {})}
    return Package("harmony-sample", version, files, **more)


def script(*lines: str) -> str:
    """A maintainer script."""
    return "\n".join(["#!/bin/sh", "set -e", *lines, ""])


def names(entries: Sequence[str]) -> list[str]:
    """The packages of a list of the result."""
    return [entry.split(" ")[0] for entry in entries]
