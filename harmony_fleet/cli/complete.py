"""Names that the shell completes: those that the last answers and the roster had, those that were
enrolled, and what can be explained.

Imports nothing of the work, so that a key press is quick; whatever goes wrong, there is nothing to
complete.
"""

# ruff: noqa: PLC0415 - what is needed is imported when it is

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from harmony_fleet.storage import names

WITHOUT_LOGS: Final = ("File/", "Network/", "Package/", "SystemUpgrade/", "Volume/")


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
    from harmony_fleet.manifests import reference

    return [
        name
        for name in reference.names()
        if name.lower().startswith(incomplete.lower()) and name.count(".") <= incomplete.count(".")
    ]


def resources(incomplete: str) -> list[str]:
    """Resources that begin so, as ``Container/web``."""
    return _known("resources", incomplete)


def logged(incomplete: str) -> list[str]:
    """Those of them that have logs."""
    return [name for name in resources(incomplete) if not name.startswith(WITHOUT_LOGS)]


def _known(what: str, incomplete: str) -> list[str]:
    home = Path(os.environ.get("HARMONY_HOME") or "~/.config/harmony").expanduser()
    found = set(names.known(home, what))
    found |= set(_enrolled(home)) if what == "devices" else set()
    return sorted(name for name in found if name.startswith(incomplete))


def _enrolled(home: Path) -> Iterable[str]:
    try:
        return list(json.loads((home / "authority" / "authority.json").read_bytes())["devices"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return []
