"""Where devices, lans and servers are made, and where all of them go again.

    with Lab() as lab:
        lan = lab.lan()
        device = lab.device("bookworm", lan)
        device.run(["systemctl", "--version"])

Must not import pytest: the demonstration uses it as the tests do.
"""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType

from tests.device.claims import Run, sweep
from tests.device.disk import Disk, make_disk
from tests.device.image import SUITES, Images
from tests.device.machine import Device
from tests.device.nats import NatsServer
from tests.device.network import GATEWAY, NATS_HOST, Lan
from tests.device.storage import Pool
from tests.device.tools import HarnessError

_TOOLS = (
    *(
        "systemd-nspawn",
        "systemd-socket-activate",
        "journalctl",
        "nsenter",
        "setpriv",
        "losetup",
        "ip",
        "iptables",
    ),
    *("mmdebstrap", "mkfs.btrfs", "btrfs", "mke2fs", "busybox"),
)


def missing() -> list[str]:
    """What this machine lacks for booting a device, each a sentence; nothing when all is there."""
    lacks = [] if os.geteuid() == 0 else ["cannot boot a device: not root"]
    absent = [
        tool for tool in _TOOLS if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None
    ]
    if absent:
        lacks.append(
            f"cannot boot a device: {', '.join(absent)} not installed; see tests/device/apt-packages.txt"
        )
    lacks += [f"cannot boot a device: {node} is missing" for node in ("/dev/fuse", "/dev/net/tun", "/dev/loop-control")
              if not Path(node).exists()]  # fmt: skip
    return lacks


class Lab:
    """One process's devices and networks. A context manager; closing it removes everything that it
    made.
    """

    def __init__(self, cache: Path | None = None) -> None:
        self._cache, self._stack = cache, ExitStack()
        self._devices: list[Device] = []

    def __enter__(self) -> "Lab":
        sweep()
        with ExitStack() as stack:
            self._pool = stack.enter_context(Pool(self._cache))
            self._run = stack.enter_context(Run())
            self._stack = stack.pop_all()
        self.images = Images(self._pool, self._run)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        """A folder of this run on the host that goes with it."""
        return self._run.folder

    @property
    def running(self) -> list[Device]:
        """The devices that run now."""
        return [device for device in self._devices if device.running]

    def lan(
        self, *, max_payload: int | None = None, sync_interval: str | None = None, extra: str = ""
    ) -> "ServedLan":  # fmt: skip
        """A network with a running nats-server in it."""
        lan = ServedLan(self._run)
        self._stack.callback(lan.close)
        lan.nats = NatsServer(
            self._run, lan, max_payload=max_payload, sync_interval=sync_interval, extra=extra
        )
        lan.nats.start()
        return lan

    def device(
        self,
        suite: str = SUITES[0],
        lan: Lan | None = None,
        *,
        durable: bool = False,
        bare: bool = False,
        boot: bool = True,
        hostname: str | None = None,
    ) -> Device:
        """A new device of `suite`, linked to `lan`, booted unless told not to. Its hostname is the
        suite's name.

        A `durable` one is on a disk of its own, for power cuts. A `bare` one has neither the
        project nor what that needs, as a machine has before its first installation.
        """
        if durable and bare:
            raise HarnessError("cannot make a device that is both durable and bare: choose one")
        name, disk = self._run.unique(suite[0]), None
        if durable:
            disk, root, claims = self._pool.disk(self._run, self.images.disk(suite), name)
        else:
            image = self.images.base(suite) if bare else self.images.project(suite)
            root, claims = self._pool.snapshot(self._run, image, name)
        device = Device(
            self._run,
            root,
            name=name,
            suite=suite,
            hostname=hostname or suite,
            link=lan.attach(name) if lan else None,
            console=self.folder / f"{name}.console",
            claims=claims,
            disk=Disk(disk, root) if disk else None,
        )
        self._stack.callback(device.close)
        self._devices.append(device)
        device.know_hosts({NATS_HOST: GATEWAY})
        return device.boot() if boot else device

    @contextmanager
    def disk(self, size: str = "128M") -> Iterator[Disk]:
        """An empty disk, mounted at its `folder`, whose power a test may cut."""
        image, folder, claims = self._pool.place(self._run, self._run.unique("disk"))
        try:
            make_disk(image, size)
            disk = Disk(image, folder)
            disk.mount()
            yield disk
        finally:
            for claim in reversed(claims):
                self._run.free(claim)

    def devices(self, count: int, suite: str = SUITES[0], lan: Lan | None = None) -> list[Device]:
        """Several devices, booted side by side; their hostnames are the suite and a number."""
        made = [
            self.device(suite, lan, boot=False, hostname=f"{suite}-{n}")
            for n in range(1, count + 1)
        ]
        with ThreadPoolExecutor(max_workers=8) as workers:
            return list(workers.map(Device.boot, made))


class ServedLan(Lan):
    """A lan with its nats-server."""

    nats: NatsServer

    def close(self) -> None:
        """End the server, and remove the network and the links to it."""
        if hasattr(self, "nats"):
            self.nats.close()
        super().close()
