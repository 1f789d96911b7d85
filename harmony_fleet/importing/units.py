"""Unit files: they are taken as they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from harmony_fleet.importing.quadlet import entries
from harmony_fleet.importing.resource import Resource

SUFFIXES: Final = tuple(
    f".{kind}"
    for kind in (
        "service",
        "socket",
        "timer",
        "path",
        "mount",
        "automount",
        "swap",
        "target",
        "slice",
    )
)
_USERS: Final = frozenset({"default.target", "timers.target", "sockets.target", "paths.target"})


def read(file: str, text: str, all_files: Mapping[str, str]) -> Resource:
    """The unit of a file, with its drop-ins among the others."""
    made = Resource("SystemdUnit", file, {"content": text if text.endswith("\n") else f"{text}\n"})
    lines = list(entries(text))
    dropins = {
        name.rpartition("/")[2]: other
        for name, other in all_files.items()
        if name.startswith(f"{file}.d/")
    }
    if dropins:
        made.set("dropins", dropins)
    if any(section == "Install" for section, _, _ in lines) and "@." not in file:
        made.set("enabled", True)
    stem = file.rpartition(".")[0]
    if file.endswith(".service") and any(
        f"{stem}.{kind}" in all_files for kind in ("timer", "socket", "path")
    ):
        made.set("state", "none")
        made.fields.pop("enabled", None)
        made.note("state", "its timer, socket or path starts it")
    for section, key, value in lines:
        if section == "Install" and key == "WantedBy" and not _USERS & set(value.split()):
            made.note(f"WantedBy={value}", "a user's manager has default.target in its place")
        if section == "Service" and key in ("User", "Group"):
            made.note(f"{key}={value}", "only the system's manager knows it: [systemd] scope")
        if section == "Service" and key in ("ExecStart", "EnvironmentFile"):
            path = re.sub(r"^[-@:+!]*", "", value).partition(" ")[0]
            if path.startswith("/") and not path.startswith(("/bin/", "/usr/", "/sbin/")):
                made.note(f"{key}={path}", "this file has to be on the device: a File brings it")
    return made
