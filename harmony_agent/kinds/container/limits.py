"""Container: which limits this device can't set, because the kernel has no such cgroup controller.

Pure. Raspberry Pi OS switches the one for memory off by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scores.container import Container

CONTROLLERS: Final = {"memory": "memory", "cpus": "cpu", "pids": "pids"}
"""Fields of a Score, and the controller that each needs."""


def needed(spec: Container) -> list[str]:
    """List the controllers that the spec needs in order to run."""
    if spec.state == "stopped":
        return []
    return [
        controller for field, controller in CONTROLLERS.items() if getattr(spec, field) is not None
    ]


def remedy(missing: Collection[str]) -> str:
    """Say how to get the controllers that are missing."""
    ways = []
    if "memory" in missing:
        ways.append(
            "for memory add cgroup_enable=memory cgroup_memory=1 to the line of /boot/firmware/cmdline.txt and reboot"
        )
    if others := [name for name in missing if name != "memory"]:
        ways.append(
            f"for {' and '.join(others)} set Delegate=yes in a drop-in of user@.service and reboot"
        )
    return "; ".join(ways)
