"""Paths that no Score may reach, whatever the roots are.

They are the agent's and the updater's own, and paths that give somebody their rights. The module
resolves links when the agent starts, and changes nothing. The kinds refuse the paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Final

from harmony_agent.core.paths import below

_SECRET: Final = (
    "/etc/harmony",
    "/var/lib/harmony-fleet-updater",
    "/run/harmony-updater",
    "/run/user",
    "/run/systemd",
    "/var/lib/systemd",
)
"""Configuration and credentials, journals, the sockets by which managers, podman and the updater
are spoken to, and what systemd keeps, such as whose manager is up at boot.
"""
_CODE: Final = (
    *(
        "/opt/harmony",
        "/usr/lib/harmony-agent",
        "/etc/polkit-1",
        "/etc/systemd",
        "/usr/lib/systemd",
        "/lib/systemd",
    ),
    *("/usr/local/lib/systemd", "/proc", "/sys"),
)
"""Paths of the agent and the updater, and the unit directories.

Only the kind SystemdUnit writes to the latter.
"""
_IN_HOME: Final = (".config", ".local", ".ssh")
"""Unit files of the user's manager, podman's configuration and storage, and keys."""


class ProtectedPaths:
    """`own` are the paths that the configuration names; `home` is that of the agent's user."""

    def __init__(self, own: Iterable[str], home: str, roots: Sequence[str]) -> None:
        secret = _spellings([*_SECRET, *own]) | {
            f"{top}/{name}" for top in _spellings([home]) for name in _IN_HOME
        }
        self.mounts = _through(secret, roots)
        """No container may have one of these, what is in it or what holds it."""
        self.files = _through(secret | _spellings(_CODE), roots)
        """No File and no env file may be one of these, in one, or hold one."""


def _spellings(paths: Iterable[str]) -> set[str]:
    """The paths as they are written, and without the links on the way."""
    return {
        spelling
        for path in paths
        if path
        for spelling in (path.rstrip("/"), os.path.realpath(path))
    }


def _through(places: set[str], roots: Sequence[str]) -> tuple[str, ...]:
    """Return the places, and their names below a root that is a link."""
    found = set(places)
    for root in roots:
        named, real = root.rstrip("/"), os.path.realpath(root).rstrip("/")
        if real != named:
            found |= {named + place[len(real) :] for place in places if below(place, real)}
    return tuple(sorted(found))
