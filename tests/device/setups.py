"""The set-ups of docs/setups on one device with two agents: fleet-agent's own, and one of the system.

Must not know what any one set-up is made of.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harmony_fleet.manifests.load import drafts
from scores import Container, Manifest
from tests.device.agent import COMMAND, to_toml
from tests.device.control import Control
from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.prepare import BUSYBOX, HOME, USER

DOCS: Final = Path(__file__).parents[2] / "docs" / "setups"
ZONE: Final = "/usr/share/zoneinfo/Europe/Berlin"
PI, SYSTEM_PI = "pi-01", "pi-01-system"
_CONFIG: Final[Mapping[str, Mapping[str, Any]]] = {
    "agent": {"device_id": PI},
    "nats": {"servers": ["nats://nats:4222"]},
    "podman": {"allow": ["privileged", "host-pid"]},
    "intervals": {"heartbeat": 2, "relist": 2, "poll": 2},
}
_SYSTEM: Final[Mapping[str, Mapping[str, Any]]] = {
    **_CONFIG,
    "agent": {"device_id": SYSTEM_PI, "state_dir": "/var/lib/harmony-system"},
    "systemd": {"scope": "system", "units": ["kiosk.service"]},
}
_AGENT: Final = f"""[Unit]
After=network.target podman.socket
[Service]
Type=notify
Environment=HARMONY_AGENT_CONFIG=/etc/harmony/system.toml HOME=/root
ExecStart={" ".join(COMMAND)}
Restart=always
[Install]
WantedBy=multi-user.target
"""
_NODES: Final = """[Unit]
DefaultDependencies=no
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=systemd-tmpfiles --create /etc/hardware.conf
[Install]
WantedBy=sysinit.target
"""
"""What the kernel and udev do at each boot of a device that has the hardware."""
_STAND_IN: Final = """FROM {busybox}
COPY group /etc/group
ENTRYPOINT ["/bin/sh", "-c", "{serve}trap 'exit 0' TERM; sleep 1000000 & wait"]
"""
_UNHEALTHY: Final = 'HEALTHCHECK --interval=1s CMD ["false"]\n'


@dataclass
class Setup:
    """A set-up: its file's number, the device that it is for, its manifest."""

    number: int
    device: str
    manifest: Manifest

    @property
    def images(self) -> set[str]:
        """The images that it needs."""
        scores = self.manifest.scores
        return {one.image for one in scores if isinstance(one, Container)}


@dataclass
class Home:
    """A device with the set-ups' hardware, users and images, and the server that it asks."""

    device: Device
    control: Control
    setups: Mapping[int, Setup]

    def rootful(self, number: int) -> bool:
        """Tell whose podman runs a set-up."""
        return self.setups[number].device == SYSTEM_PI

    def inside(self, number: int, name: str, script: str) -> str:
        """The output of a script in a container, with one space between words."""
        argv = ["exec", name, "sh", "-c", script]
        done = self.device.podman(*argv, root=self.rootful(number), check=False)
        return " ".join((done.stdout + done.stderr).split())

    def runs(self) -> dict[str, str]:
        """Each container of ours, and since when it runs."""
        shape = "--format={{.Names}} {{.ID}} {{.StartedAt}}"
        listed = [
            self.device.podman("ps", "--all", shape, root=root).stdout for root in (False, True)
        ]
        return dict(line.split(" ", 1) for text in listed for line in text.splitlines())

    def traces(self) -> dict[str, str]:
        """All that set-ups may leave on the device."""
        asked = {
            "containers": ["ps", "--all", "--external", "--quiet"],
            "volumes": ["volume", "ls", "--quiet"],
            "networks": ["network", "ls", "--format={{.Name}}"],
            "images": ["images", "--format={{.ID}} {{.Repository}}:{{.Tag}}"],
            "secrets": ["secret", "ls", "--format={{.Name}}"],
        }
        found = {
            f"{what} {root}": "\n".join(
                sorted(self.device.podman(*argv, root=root).stdout.split("\n"))
            )
            for what, argv in asked.items()
            for root in (False, True)
        }
        units = ["/etc/systemd", f"{HOME}/.config/systemd", "/srv", "/etc/harmony"]
        found["files"] = self.device.run(["find", *units]).stdout
        found["processes"] = self.device.run(["pgrep", "-a", "conmon|aardvark"], check=False).stdout
        return found

    def put(self, *, on_remove: str = "delete") -> None:
        """Put every set-up, and wait until all of them are converged."""
        for one in self.setups.values():
            wire = one.manifest.wire()
            for score in wire["scores"]:
                if score["kind"] == "Volume" and on_remove != "delete":
                    score["on_remove"] = on_remove
            self.control.apply(one.device, Manifest.model_validate(wire))
        self.wait()

    def wait(self, timeout: float = 240) -> None:
        """Wait until all of them are converged."""
        for one in self.setups.values():
            self.control.wait(one.device, one.manifest.deployment, timeout=timeout)

    def reboot(self) -> None:
        """Reboot the device, and wait until each container runs again and all are converged."""
        before = self.runs()
        self.device.reboot()
        deadline = time.monotonic() + 240
        while before.items() & self.runs().items():
            assert time.monotonic() < deadline, before.items() & self.runs().items()
            time.sleep(1)
        for device in (PI, SYSTEM_PI):
            self.control.resync(device)
        self.wait()

    def remove(self) -> None:
        """Take all of them off."""
        for one in self.setups.values():
            gone = Manifest(deployment=one.manifest.deployment, removed=True)
            self.control.apply(one.device, gone)
        for one in self.setups.values():
            self.control.wait(one.device, one.manifest.deployment, phase="Removed", timeout=120)


@dataclass(frozen=True)
class Needs:
    """What set-ups need of their device: which are for the system's agent, the variables' values,
    nodes of hardware as tmpfiles.d has them, images whose health check fails, and limits in the place
    of those that no process of this machine may have.
    """

    system: frozenset[int]
    variables: Mapping[str, Any]
    hardware: str
    unhealthy: frozenset[str]
    limits: Mapping[str, int]

    def setups(self, address: str) -> dict[int, Setup]:
        """The set-ups as the documentation has them."""
        found = {}
        for path in sorted(DOCS.glob("*.yaml")):
            [draft] = drafts(str(path))
            number = int(path.name.partition("-")[0])
            device = SYSTEM_PI if number in self.system else PI
            wire = draft.manifest({**self.variables, "address": address}, device).wire()
            for score in wire["scores"]:
                if "ulimits" in score:
                    limits = self.limits.items()
                    score["ulimits"] = {name: {"soft": most, "hard": most} for name, most in limits}
            found[number] = Setup(number, device, Manifest.model_validate(wire))
        return found


@contextmanager
def home(lab: Lab, suite: str, needs: Needs) -> Iterator[Home]:
    """A booted device with both agents; all of it goes at the end."""
    with ExitStack() as stack:
        lan = lab.lan()
        stack.callback(lan.close)
        device = lab.device(suite, lan)
        stack.callback(device.close)
        control = stack.enter_context(Control(lan.nats.host_url))
        setups = needs.setups(device.link.address)
        _furnish(device, needs.hardware)
        for root in (False, True):
            mine = [one.images for one in setups.values() if (one.device == SYSTEM_PI) == root]
            _stand_in(device, set().union(*mine), needs.unhealthy, root=root)
        _install(device)
        yield Home(device, control, setups)


def _furnish(device: Device, hardware: str) -> None:
    """Hardware, the runtime that keeps groups, and the programs that units start."""
    device.write("/etc/resolv.conf", "nameserver 127.0.0.1\n")
    device.write("/etc/hardware.conf", hardware)
    device.write("/etc/systemd/system/hardware.service", _NODES)
    device.systemctl("enable", "--quiet", "--now", "hardware.service")
    for path in ("/usr/bin/chromium", "/usr/bin/prometheus-node-exporter"):
        device.write(path, "#!/bin/sh\nexec sleep 1000000\n", mode=0o755)
    engine = f"{HOME}/.config/containers/containers.conf"
    device.run(["mkdir", "--parents", engine.rpartition("/")[0]], user=USER)
    device.write(engine, '[engine]\nruntime = "crun"\n', owner=USER)
    device.run(["useradd", "--create-home", "kiosk"])
    device.run(["usermod", "--append", "--groups", "dialout", USER])
    device.systemctl("restart", "user@1000.service")
    device.run(["mkdir", "--parents", ZONE.rpartition("/")[0]])
    device.write(ZONE, Path(ZONE).read_bytes())
    device.run(["ln", "--symbolic", "--force", ZONE, "/etc/localtime"])


def _stand_in(device: Device, images: set[str], unhealthy: frozenset[str], *, root: bool) -> None:
    """A small image under each name. That of a broker listens, and some have a health check."""
    device.run(["mkdir", "--parents", "/tmp/image"])
    device.write("/tmp/image/group", "root:x:0:\ndialout:x:20:\n")
    kinds = {
        "broker": {one for one in images if "mosquitto" in one},
        "unhealthy": {one for one in images if one.partition(":")[0] in unhealthy},
    }
    kinds["plain"] = images - kinds["broker"] - kinds["unhealthy"]
    for kind, names in kinds.items():
        text = _STAND_IN.format(
            busybox=BUSYBOX, serve="httpd -p 1883; " if kind == "broker" else ""
        )
        text += _UNHEALTHY if kind == "unhealthy" else ""
        device.write(f"/tmp/image/{kind}", text)
        tags = [f"--tag={name}" for name in sorted(names)]
        argv = ["build", "--quiet", "--format=docker", f"--file=/tmp/image/{kind}", *tags]
        if names:
            device.podman(*argv, "/tmp/image", root=root)


def _install(device: Device) -> None:
    device.systemctl("enable", "--quiet", "--now", "podman.socket", user=True)
    device.systemctl("enable", "--quiet", "--now", "podman.socket")
    device.make_folder("/var/lib/harmony-system")
    device.agent.install(_CONFIG, service_type="notify")
    device.write("/etc/harmony/system.toml", to_toml(_SYSTEM))
    device.write("/etc/systemd/system/harmony-system.service", _AGENT)
    device.systemctl("enable", "--quiet", "--now", "harmony-system.service")
