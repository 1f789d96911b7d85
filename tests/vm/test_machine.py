"""The virtual machine itself: what it promises beyond a device in namespaces, and what it leaves
behind.
"""

import os
from pathlib import Path

import pytest

from tests.device.commands import CommandError
from tests.device.prepare import USER
from tests.device.test_harness import traces
from tests.vm.machine import Vm, VmLab


def test_runs_a_kernel_of_its_own(vm: Vm) -> None:
    assert vm.run(["systemd-detect-virt"]).stdout.strip() in {"qemu", "kvm"}
    assert vm.run(["uname", "--kernel-release"]).stdout.strip() != os.uname().release
    assert (
        vm.boot_id() != Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    )
    assert vm.systemctl("is-system-running").stdout.strip() == "running"
    assert vm.systemctl("is-system-running", user=True).stdout.strip() == "running"


def test_tells_exact_exit_codes_and_output(vm: Vm) -> None:
    assert vm.run(["python3", "-c", "raise SystemExit(37)"], check=False).rc == 37
    assert (
        vm.run(["python3", "-c", "import os; os.kill(os.getpid(), 15)"], check=False).rc == 128 + 15
    )
    assert vm.run(["no-such-command"], check=False).rc == 127
    both = vm.run(["python3", "-c", "import sys; print('out'); print('err', file=sys.stderr)"])
    assert (both.stdout, both.stderr) == ("out\n", "err\n")
    assert vm.run(["id", "--user", "--name"], user=USER).stdout == f"{USER}\n"
    large = bytes(range(256)) * 4096
    assert vm.run(["cat"], input=large).out == large
    with pytest.raises(CommandError, match="had not ended after"):
        vm.run(["sleep", "977"], timeout=1)
    assert vm.run(["pgrep", "--full", "sleep 977"], check=False).rc == 1


def test_reaches_the_nats_server_and_nothing_else(vm: Vm) -> None:
    reach = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 5); print('reached')"
    assert vm.run(["python3", "-c", reach, "nats", "4222"]).stdout == "reached\n"
    # Documentation's address, and what would be a service of the host's own loopback.
    for address, port in (("192.0.2.1", "80"), ("10.0.2.2", "22"), ("10.0.2.3", "53")):
        assert vm.run(["python3", "-c", reach, address, port], check=False).rc == 1, (address, port)


def test_its_clock_is_synchronised(vm: Vm) -> None:
    vm.until("its clock is synchronised", ["test", "-e", "/run/systemd/timesync/synchronized"])
    assert (
        vm.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).stdout == "yes\n"
    )


def test_leaves_nothing_behind(lab: VmLab) -> None:
    with VmLab() as other:
        other.vm(other.lan(), boot=False).power_on()
        run = other.folder.name
        assert any("qemu-system" in line for line in traces(run))
    assert traces(run) == []
