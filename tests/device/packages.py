"""A device that has the packages of `make deb` as a fleet's member has: built, installed by apt,
joined.

    with installed(lab, "bookworm") as site:
        site.converge(page(), web())

Must not know what any one test does to the device. What runs on the device is Life's to tell.
"""

from __future__ import annotations

import contextlib
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.device.agent import to_toml
from tests.device.control import Control
from tests.device.lab import Lab, ServedLan
from tests.device.life import PI, Life
from tests.device.machine import Device
from tests.device.network import Lan
from tests.device.prepare import BUSYBOX, BUSYBOX_TAR, USER
from tests.device.storage import REPOSITORY
from tests.device.tools import call

PACKAGES = ("harmony-agent", "harmony-updater")
AGENT, UPDATER = "harmony-agent.service", "harmony-updater.service"
HOME = f"/var/lib/{USER}"
ROOTS = ("/srv", "/data/files")
PLACE = "/var/tmp/packages"
DEBIAN = {"bookworm": "deb12", "trixie": "deb13"}
ARCH = {"x86_64": "amd64", "aarch64": "arm64"}


def built(lab: Lab, suite: str, version: str, *more: str) -> list[Path]:
    """The packages of that version, from the tree as it is; built once a run."""
    folder = lab.folder / f"packages-{suite}"
    arch = ARCH[platform.machine()]
    names = [*PACKAGES, *more]
    debs = [folder / f"{name}_{version}-1+{DEBIAN[suite]}_{arch}.deb" for name in PACKAGES]
    debs += [folder / f"{name}_{version}-1_all.deb" for name in more]
    if not all(deb.exists() for deb in debs):
        argv = [
            sys.executable,
            str(REPOSITORY / "deploy/deb/build.py"),
            "--suite",
            suite,
            "--arch",
            arch,
        ]
        for name in names:
            argv += ["--package", name]
        call(
            *argv,
            "--version",
            version,
            "--compression",
            "none",
            "--no-lint",
            "--out",
            str(folder),
            timeout=600,
        )
    return debs


class Installed(Life):
    """A device with the packages. Its agent is a unit of the system."""

    device: Device
    control: Control

    def apt(self, *argv: str, check: bool = True) -> str:
        """apt-get as an operator runs it; all that it said."""
        env = {"DEBIAN_FRONTEND": "noninteractive"}
        wait = "DPkg::Lock::Timeout=120"  # the device may be at its own packages
        done = self.device.run(
            ["apt-get", "-q", "-y", "-o", wait, *argv], env=env, timeout=300, check=check
        )
        self.device.know_users()
        return done.stdout + done.stderr

    def install(self, *debs: Path) -> str:
        """`apt install ./x.deb`; what apt said."""
        self.device.run(["rm", "--recursive", "--force", PLACE])
        for deb in debs:
            self.device.write(f"{PLACE}/{deb.name}", deb.read_bytes())
        return self.apt("install", *(f"{PLACE}/{deb.name}" for deb in debs))

    def join(self) -> None:
        """Make the device a member of the fleet."""
        self.configure()
        self.device.write("/etc/harmony/updater.toml", f"device_id = {json.dumps(PI)}\n")
        self.device.systemctl("start", AGENT, "harmony-updater.socket", UPDATER)

    def configure(self, **tables: dict[str, Any]) -> None:
        """Write the agent's configuration, with more tables; it takes effect at the next start."""
        config: dict[str, dict[str, Any]] = {
            "agent": {"device_id": PI},
            "nats": {"servers": ["nats://nats:4222"]},
            "files": {"roots": list(ROOTS)},
            "intervals": {"heartbeat": 1, "relist": 1, "poll": 1},
        }
        self.device.write("/etc/harmony/agent.toml", to_toml(config | tables), mode=0o640)
        self.device.run(["chgrp", "harmony-agent", "/etc/harmony/agent.toml"])
        self.device.systemctl("daemon-reload")

    def synchronise(self) -> None:
        """Let the clock count as synchronised, also after a reboot: a container has no time
        service.
        """
        lines = "d /run/systemd/timesync\nf /run/systemd/timesync/synchronized\n"
        self.device.write("/etc/tmpfiles.d/synchronised.conf", lines)
        self.device.run(["systemd-tmpfiles", "--create", "/etc/tmpfiles.d/synchronised.conf"])

    def load_image(self) -> None:
        """The image for containers, which the new user doesn't have yet."""
        self.device.podman("import", BUSYBOX_TAR, BUSYBOX)

    def main_pid(self, unit: str = AGENT) -> int:
        """The main process of a unit of the system, as the device sees it; 0 where it doesn't
        run.
        """
        return int(self.device.systemctl("show", "--property=MainPID", "--value", unit).stdout)

    def agent_version(self) -> str:
        """What the agent on the device says of itself."""
        return self.device.run(["harmony-agent", "version"]).stdout.strip()

    def updater_version(self) -> str:
        """The version of the updater's package, without Debian's part."""
        asked = ["dpkg-query", "--show", "--showformat=${Version}", "harmony-updater"]
        return self.device.run(asked).stdout.partition("-")[0]


@contextlib.contextmanager
def fresh(lab: Lab, suite: str) -> Iterator[Installed]:
    """A device on which nothing of ours is, not even the user that other devices have from the
    start.
    """
    with unjoined(lab, suite) as (device, lan), Control(lan.nats.host_url) as control:
        yield Installed(device, control, lan)


@contextlib.contextmanager
def unjoined(lab: Lab, suite: str) -> Iterator[tuple[Device, ServedLan]]:
    """The same without a connection to its lan's server."""
    with contextlib.ExitStack() as stack:
        lan = lab.lan()
        stack.callback(lan.close)
        device = untouched(lab, suite, lan)
        stack.callback(device.close)
        yield device.boot(), lan


def untouched(lab: Lab, suite: str, lan: Lan, hostname: str | None = None) -> Device:
    """A device on which nothing of ours is; not booted yet."""
    device = lab.device(suite, lan, bare=True, boot=False, hostname=hostname)
    call("chroot", str(device.root), "userdel", "--remove", USER)
    for path in (f"var/lib/systemd/linger/{USER}", "etc/subuid", "etc/subgid"):
        (device.root / path).unlink()
    (device.root / "etc/subuid").touch()
    (device.root / "etc/subgid").touch()
    return device
