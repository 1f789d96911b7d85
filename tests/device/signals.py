"""Signals to processes of a device; SIGSTOP comes back when it holds.

Must not know what any one test wants.
"""

import signal
from collections.abc import Sequence

from tests.device.machine import Device
from tests.halted import halt


def send(device: Device, number: int, pids: Sequence[str]) -> None:
    """Send a signal to processes, by the ids that the device knows them by."""
    if number == signal.SIGSTOP:
        for pid in pids:
            halt(device.host_pid(int(pid)))
    else:
        done = device.run(["kill", f"-{int(number)}", *pids], env={"LC_ALL": "C"}, check=False)
        failed = done.stderr.splitlines()
        gone = [
            line for line in failed if "No such process" in line
        ]  # what has ended needs no signal
        assert done.rc == 0 or failed == gone != [], failed


def signal_podman(device: Device, number: int, *, needed: bool = True) -> None:
    """Send a signal to every process of podman's service; rootless podman leaves its unit's control
    group.
    """
    found = device.run(
        ["pgrep", "--full", "^(/usr/bin/)?podman .*system service"], check=False
    ).stdout.split()
    assert found or not needed, "podman's service runs"
    if found:
        send(device, number, found)
