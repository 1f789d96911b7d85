"""The disk image of the virtual machine: a device's layers with a kernel, and what a machine of its
own needs besides.

Must not boot a virtual machine. What is shared with devices is in tests/device/image.py.
"""

from pathlib import Path

from tests.device import prepare
from tests.device.image import Images, packages
from tests.device.tools import call

SUITE = "bookworm"
ADDRESS, HOST = (
    "10.0.2.15",
    "10.0.2.2",
)  # QEMU's own network: the guest, and the loopback of where QEMU runs
PACKAGES = [
    "linux-image-cloud-amd64",
    "initramfs-tools",
    "zstd",
    "qemu-guest-agent",
    "systemd-timesyncd",
    "kmod",
]

_FILES = {
    "/etc/hostname": "vm\n",
    "/etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 vm\n{HOST} nats\n",
    # Every megabyte less is unpacked faster by a processor that is emulated.
    "/etc/initramfs-tools/conf.d/harmony-vm": "MODULES=list\nCOMPRESS=zstd\n",
    "/etc/initramfs-tools/modules": "virtio_pci\nvirtio_blk\next4\n",
    "/etc/systemd/network/10-vm.network": f"[Match]\nType=ether\n[Network]\nAddress={ADDRESS}/24\nGateway={HOST}\n"
    "LinkLocalAddressing=no\nIPv6AcceptRA=no\n",
    "/etc/systemd/timesyncd.conf.d/vm.conf": f"[Time]\nNTP={HOST}\nFallbackNTP=\n",
    # It notes every question whether a command has ended.
    "/etc/systemd/system/qemu-guest-agent.service.d/quiet.conf": "[Service]\nLogLevelMax=warning\n",
    # A whole system has no bound on tasks and files that a device in a namespace has to be told.
    "/etc/containers/containers.conf": '[engine]\nruntime = "runc"\n',
    # Nothing is written to the disk's journal before it is asked for otherwise, and a power cut
    # would lose the tail.
    "/etc/systemd/journald.conf.d/vm.conf": "[Journal]\nStorage=persistent\nSyncIntervalSec=5s\nForwardToConsole=no\n",
}
# The first would hold up the boot for preparation, which has no network. The agent needs none of
# podman's own, and each costs an emulated processor seconds of every boot.
_PODMAN = ("podman.service", "podman-restart.service")
_DISABLED = (((), ("systemd-networkd-wait-online.service", *_PODMAN)), (("--global",), _PODMAN))
_ENABLED = ("systemd-networkd.service", "systemd-timesyncd.service")


class VmImages(Images):
    """The device's images, each with a kernel."""

    def packages(self, suite: str) -> list[str]:
        """A device's packages and a machine's."""
        return packages(suite) + PACKAGES

    def preparation(self) -> list[str]:
        """A device's preparation and this file."""
        return [*super().preparation(), Path(__file__).read_text(encoding="utf-8")]

    def prepare(self, root: Path) -> None:
        """A device's preparation, then network, clock and a small initrd."""
        prepare.prepare(root)
        for path, content in _FILES.items():
            target = root / path[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")
        call("systemctl", f"--root={root}", "enable", *_ENABLED)
        for options, units in _DISABLED:
            call("systemctl", f"--root={root}", *options, "disable", *units)
        call(
            "chroot",
            str(root),
            "update-initramfs",
            "-u",
            "-k",
            "all",
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
