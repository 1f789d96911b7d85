"""Signals to processes of a device; SIGSTOP comes back when it holds, for each thread stops only when it next runs.

Must not know what any one test wants.
"""

import signal
import time
from collections.abc import Sequence

from tests.device.machine import Device
from tests.device.tools import HarnessError

STOPS_WITHIN = 20.0


def send(device: Device, number: int, pids: Sequence[str]) -> None:
    """Send a signal to processes, by the ids that the device knows them by."""
    device.run(["kill", f"-{int(number)}", *pids])
    if number != signal.SIGSTOP:
        return
    deadline = time.monotonic() + STOPS_WITHIN
    while running := set(_states(device, pids)) - {"T"}:
        if time.monotonic() > deadline:
            raise HarnessError(f"cannot stop {', '.join(pids)}: threads are in state {', '.join(sorted(running))}")


def signal_podman(device: Device, number: int, *, needed: bool = True) -> None:
    """Send a signal to every process of podman's service; rootless podman leaves its unit's control group."""
    found = device.run(["pgrep", "--full", "^(/usr/bin/)?podman .*system service"], check=False).stdout.split()
    assert found or not needed, "podman's service runs"
    if found:
        send(device, number, found)


def _states(device: Device, pids: Sequence[str]) -> str:
    """One letter for each thread (ps(1), `s`)."""
    return "".join(device.run(["ps", "-L", "-o", "s=", "-p", ",".join(pids)], check=False).stdout.split())
