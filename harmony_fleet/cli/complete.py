"""Names that the shell completes: those of the roster, those that were enrolled, those that the
last answers showed, and what can be explained.

Imports nothing of the work, so that a key press is quick; whatever goes wrong, there is nothing to
complete.
"""

# ruff: noqa: PLC0415 - what is needed is imported when it is

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path


def devices(incomplete: str) -> list[str]:
    """Devices that begin so."""
    return _known("devices", incomplete)


def deployments(incomplete: str) -> list[str]:
    """Deployments that begin so."""
    return _known("deployments", incomplete)


def places(incomplete: str) -> list[str]:
    """Devices, and deployments on the device that stands in front of the slash."""
    device, slash, deployment = incomplete.partition("/")
    return [f"{device}/{name}" for name in deployments(deployment)] if slash else devices(device)


def explained(incomplete: str) -> list[str]:
    """Codes, kinds and fields that begin so; fields once their kind is written."""
    from harmony_fleet.manifests.reference import names

    return [
        name
        for name in names()
        if name.lower().startswith(incomplete.lower()) and name.count(".") <= incomplete.count(".")
    ]


def _known(what: str, incomplete: str) -> list[str]:
    home = Path(os.environ.get("HARMONY_HOME") or "~/.config/harmony").expanduser()
    names = {*_of_the_roster(home, what), *_of_the_last_answers(home, what)}
    names |= set(_enrolled(home)) if what == "devices" else set()
    return sorted(name for name in names if name.startswith(incomplete))


def _of_the_last_answers(home: Path, what: str) -> Iterable[str]:
    try:
        known = json.loads((home / "names.json").read_bytes())[what]
        return [name for name in known if isinstance(name, str)]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []


def _enrolled(home: Path) -> Iterable[str]:
    try:
        return list(json.loads((home / "authority" / "authority.json").read_bytes())["devices"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []


def _of_the_roster(home: Path, what: str) -> Iterable[str]:
    from harmony_fleet.errors import HarmonyError
    from harmony_fleet.roster.file import RosterFile

    try:
        roster = RosterFile(home).read()
    except (HarmonyError, OSError):
        return []
    return [item.name for item in (roster.devices if what == "devices" else roster.deployments)]
