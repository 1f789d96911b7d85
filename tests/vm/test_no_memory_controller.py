"""A kernel without the cgroup controller for memory, as Raspberry Pi OS has it until its
cmdline.txt says otherwise: told before a Container asks for it, and by that Container.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from scores import Container, Manifest
from scores.keys import INFO, info_key
from scores.status import DeviceInfo
from tests.device.control import Control
from tests.device.life import eventually
from tests.device.prepare import BUSYBOX, USER
from tests.device.upgrades import PI
from tests.vm.machine import Vm, VmLab

pytestmark = pytest.mark.timeout(1800)  # a machine of its own is booted for it

SECONDS = 300
LINE = "cgroup_enable=memory cgroup_memory=1 to the line of /boot/firmware/cmdline.txt"
STAYS = "[Service]\nExecStart=\nExecStart=/usr/bin/podman system service --time=0\n"
CONFIG = {
    "agent": {"device_id": PI, "kinds": ["Container"]},
    "nats": {"servers": ["nats://nats:4222"]},
    "intervals": {"heartbeat": 5, "relist": 5, "poll": 2},
}


@dataclass
class Board:
    """The machine, and its control plane."""

    vm: Vm
    control: Control


@pytest.fixture(scope="module")
def board(lab: VmLab) -> Iterator[Board]:
    lan = lab.lan()
    with Control(lan.nats.host_url) as control:
        vm = lab.vm(lan, boot=False, parameters="cgroup_disable=memory").boot(timeout=900)
        # An emulated processor takes long to start podman: once is enough.
        vm.write("/etc/systemd/user/podman.service.d/stays.conf", STAYS)
        vm.systemctl("daemon-reload", user=True)
        vm.systemctl("enable", "--quiet", "--now", "podman.socket", user=True)
        vm.agent.install(CONFIG, service_type="notify")
        control.resync(PI, timeout=SECONDS)
        yield Board(vm, control)
        vm.close()
    lan.close()


def test_the_kernel_has_none(board: Board) -> None:
    controllers = board.vm.run(["cat", "/sys/fs/cgroup/cgroup.controllers"]).stdout.split()
    assert "cpu" in controllers
    assert "memory" not in controllers


def test_check_tells_of_it_with_the_line_that_helps(board: Board) -> None:
    argv = ["/usr/local/bin/harmony-agent", "check"]
    checked = board.vm.until("podman is checked", argv, says="cgroup", user=USER, timeout=SECONDS)
    [line] = [line for line in checked.stdout.splitlines() if "cgroup controllers" in line]
    assert "memory missing" in line
    assert LINE in line


def test_device_info_tells_of_it(board: Board) -> None:
    control = board.control
    bucket = control.do(control.jetstream.key_value(INFO))

    def missing() -> tuple[str, ...]:
        value = control.do(bucket.get(info_key(PI))).value
        return tuple(DeviceInfo.model_validate(json.loads(value or b"")).missing_controllers)

    eventually(lambda: missing() != (), "it is told", SECONDS)
    assert missing() == ("memory",)


def test_a_limit_is_blocked_before_anything_is_made_and_the_rest_runs(board: Board) -> None:
    free = Container(name="free", image=BUSYBOX, command=["sleep"], args=["infinity"], cpus=0.5)
    bound = free.model_copy(update={"name": "bound", "memory": "64Mi", "cpus": None})
    board.control.apply(PI, Manifest(deployment="web", scores=[free, bound]))
    status = board.control.until(
        PI,
        "web",
        lambda status: (
            status.resources["Container/free"].phase == "Ready"
            and status.resources["Container/bound"].phase == "Blocked"
        ),
        SECONDS,
    )
    found = status.resources["Container/bound"]
    assert found.reason == "ControllerMissing"
    assert "cannot limit memory of bound" in found.message
    assert LINE in found.message
    assert board.vm.podman("ps", "--all", "--format={{.Names}}").stdout.split() == ["free"]
    board.control.remove(PI, "web", timeout=SECONDS)
