"""Agent and updater as services of a virtual machine: the agent is fleet-agent's, the updater
root's, from deploy/.

Must not start anything by hand that would not come up by itself after a reboot.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tests.device.upgrades import PI, Upgrading
from tests.vm.machine import Vm

if TYPE_CHECKING:
    from tests.device.machine import Device

CONFIG: dict[str, dict[str, Any]] = {
    "agent": {"device_id": PI, "kinds": ["File", "SystemdUnit", "Container", "SystemUpgrade"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 5, "relist": 5, "poll": 2},
    "labels": {"site": "vm"},
}


class Served(Upgrading):
    """A virtual machine with both, and the signed repository that it upgrades from."""

    def __init__(self, vm: Vm, folder: Path) -> None:
        self.vm = vm
        super().__init__(cast("Device", vm), folder)  # it uses what both have
        vm.systemctl("enable", "--quiet", "--now", "podman.socket", user=True)
        vm.agent.install(CONFIG, service_type="notify")

    def _synchronise(self) -> None:
        """Its clock is set by systemd-timesyncd, from the clock beside it."""
        self.vm.until(
            "its clock is synchronised", ["test", "-e", "/run/systemd/timesync/synchronized"]
        )
