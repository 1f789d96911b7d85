"""The machines and people of a guide: the fleet's machine with a source tree on it, and the Pis as
they are sold.

What the guide says that one needs is made here, and nothing that it says to do.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.device.lab import Lab
from tests.device.machine import Device
from tests.device.storage import REPOSITORY
from tests.device.tools import call

OPERATOR, LOGIN = "keeper", "pi"
TREE = f"/home/{OPERATOR}/harmony"
_SOURCES = (
    *("scores", "harmony_nats", "harmony_agent", "harmony_fleet", "harmony_updater"),
    *("deploy", "docs"),
)
_FILES = ("Makefile", "pyproject.toml", "requirements.lock", "README.md")
_WHEELS = "/var/cache/wheels"


def add_person(device: Device, name: str) -> None:
    """Somebody who can log in; the device needn't run."""
    call("chroot", str(device.root), "useradd", "--create-home", "--shell", "/bin/bash", name)
    device.know_users()


def source_tree(device: Device) -> None:
    """As a clone of it is, in the operator's home; before the device boots."""
    tree = device.root / TREE[1:]
    for name in _SOURCES:
        shutil.copytree(
            REPOSITORY / name, tree / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in _FILES:
        shutil.copy(REPOSITORY / name, tree / name)
    call("chroot", str(device.root), "chown", "--recursive", f"{OPERATOR}:", TREE)


def package_index(lab: Lab, device: Device, *suites: str) -> dict[str, str]:
    """What pip finds in the network otherwise, for a device has none; the variables that say so."""
    places = []
    for suite in suites:
        place = f"{_WHEELS}/{suite}"
        shutil.copytree(lab.images.wheels(suite), device.root / place[1:])
        places.append(place)
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(places), "PIP_NO_COMPILE": "1"}


def ssh_without_password(lab: Lab, operator: Device, pi: Device) -> None:
    """`ssh pi@pi-01` has been said once: its key is known, and so is the operator's there. Both
    run.
    """
    key = Path(lab.folder, f"{operator.name}-key")
    call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key))
    pi.write("/etc/sudoers.d/010_pi-nopasswd", f"{LOGIN} ALL=(ALL) NOPASSWD: ALL\n", mode=0o440)
    given(pi, LOGIN, "authorized_keys", key.with_suffix(".pub").read_bytes())
    given(operator, OPERATOR, "id_ed25519", key.read_bytes())
    pi.systemctl("start", "ssh.service")
    host_key = pi.read_text("/etc/ssh/ssh_host_ed25519_key.pub")
    given(operator, OPERATOR, "known_hosts", f"{pi.hostname} {host_key}".encode())


def given(device: Device, user: str, name: str, data: bytes) -> None:
    """A file of somebody's ~/.ssh."""
    device.make_folder(f"/home/{user}/.ssh", owner=user, mode=0o700)
    device.write(f"/home/{user}/.ssh/{name}", data, mode=0o600, owner=user)


def carry(operator: Device, pi: Device, *patterns: str) -> None:
    """The stick: files of the source tree go to root's home on the device."""
    for pattern in patterns:
        found = sorted((operator.root / TREE[1:]).glob(pattern))
        assert found, pattern
        for path in found:
            pi.write(f"/root/{path.name}", path.read_bytes(), mode=0o600)
