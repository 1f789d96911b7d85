"""Container: which limits this device can't set, because the kernel has no such cgroup controller,
and which groups podman's runtime can't keep.

Pure. Raspberry Pi OS switches the one for memory off by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scores.container import Container
from scores.container_surroundings import KEEP_GROUPS

CONTROLLERS: Final = {"memory": "memory", "cpus": "cpu", "pids": "pids"}
"""Fields of a Score, and the controller that each needs."""
KEEPS_GROUPS: Final = "crun"
"""The runtime that can keep the groups of the agent's user; another one drops them and says nothing."""


def needed(spec: Container) -> list[str]:
    """List the controllers that the spec needs in order to run."""
    if spec.state == "stopped":
        return []
    return [
        controller for field, controller in CONTROLLERS.items() if getattr(spec, field) is not None
    ]


def unfit_runtime(spec: Container, runtime: str) -> str:
    """The name of podman's runtime where it can't keep the groups that are to be kept; else ""."""
    return runtime if KEEP_GROUPS in spec.groups and runtime not in ("", KEEPS_GROUPS) else ""


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
