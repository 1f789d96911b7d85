"""Where the contract of `topology.containers` is held: an engine in memory, and podman on a booted
Debian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from harmony_agent.adapters.podman.client import Podman
from harmony_agent.adapters.podman.images import PodmanImages
from harmony_agent.topology.containers import Containers
from harmony_agent.topology.images import Images
from tests.device.machine import Device
from tests.device.nspawn import Nspawn
from tests.device.prepare import BUSYBOX, HOME, UID, USER
from tests.fakes.containers import FakeContainers
from tests.fakes.images import FakeImages

MISSING_COMMAND = "/bin/nope"


class World(Protocol):
    """An engine, and what a person can do to it behind its back."""

    image: str

    @property
    def containers(self) -> Containers:
        """The engine."""

    @property
    def images(self) -> Images:
        """Its images."""

    async def pause(self, name: str) -> None:
        """Pause a container."""

    async def kill(self, name: str) -> None:
        """Kill what runs in a container."""

    async def stop(self, name: str) -> None:
        """Stop a container."""

    async def forget(self, name: str) -> None:
        """The engine loses its database, but not its storage."""

    async def network(self, name: str) -> None:
        """Make a network."""

    async def tag(self, name: str) -> None:
        """Give the image one more name."""

    async def clean(self) -> None:
        """Every container goes."""


class FakeWorld:
    """In memory."""

    image = "localhost/busybox"

    def __init__(self) -> None:
        self.containers = FakeContainers([self.image])
        self.images = FakeImages(self.containers)
        self.containers.missing_commands.add(MISSING_COMMAND)
        self.containers.exec_codes[MISSING_COMMAND] = 127
        self.containers.exec_codes["/bin/false"] = 1

    async def pause(self, name: str) -> None:
        self.containers.get(name).state = "paused"

    async def kill(self, name: str) -> None:
        self.containers.exits(name, 137)
        self.containers.get(name).stopped = True

    async def stop(self, name: str) -> None:
        await self.containers.stop(self.containers.get(name).id, 0)

    async def forget(self, name: str) -> None:
        self.containers.forget(name)

    async def network(self, name: str) -> None:
        """Any name will do."""

    async def tag(self, name: str) -> None:
        self.containers.images[name] = self.containers.images[self.image]

    async def clean(self) -> None:
        await self.containers.close()


class RealWorld:
    """Rootless podman of fleet-agent on a device, asked from the host through the device's file
    system.
    """

    image = BUSYBOX

    def __init__(self, device: Device) -> None:
        self.device = device
        device.systemctl("start", "podman.socket", user=True)
        self.containers = Podman(socket_of(device))
        self.images = PodmanImages(socket_of(device))

    async def pause(self, name: str) -> None:
        self.device.podman("pause", name)

    async def kill(self, name: str) -> None:
        self.device.podman("kill", name)

    async def stop(self, name: str) -> None:
        self.device.podman("stop", "--time=0", name)

    async def forget(self, name: str) -> None:
        self.device.systemctl("stop", "podman.socket", "podman.service", user=True)
        databases = f"{HOME}/.local/share/containers/storage"
        for path in (f"{databases}/libpod/bolt_state.db", f"{databases}/db.sql"):
            self.device.run(["rm", "--force", path], user=USER)
        self.device.systemctl("start", "podman.socket", user=True)

    async def network(self, name: str) -> None:
        self.device.write(
            "/etc/resolv.conf", "nameserver 127.0.0.1\n"
        )  # podman wants one on a bridge
        self.device.podman("network", "create", name)

    async def tag(self, name: str) -> None:
        self.device.podman("tag", self.image, name)

    async def clean(self) -> None:
        await self.containers.close()
        self.device.podman("rm", "--all", "--force", "--time=0")
        self.device.podman("network", "prune", "--force")


def socket_of(device: Device) -> str:
    """The socket of fleet-agent's podman, as the host sees it."""
    nspawn: Nspawn = device._nspawn
    return str(Path(f"/proc/{nspawn.leader}/root/run/user/{UID}/podman/podman.sock"))
