"""`harmony device setup`: from a login over ssh to the first heartbeat. Each step may be
repeated.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harmony_fleet.authority.ssh import Remote
from harmony_fleet.context import Context
from harmony_fleet.errors import HarmonyError, InvalidInput, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.storage.regular import read_regular
from scores.bundle import MAX_BYTES, InvalidBundle, decode
from scores.keys import HEARTBEAT, heartbeat_key

_STEP: Final = 60.0
_FOLDER: Final = "/tmp/harmony-setup."  # noqa: S108  # mktemp makes it, for its user alone
_INSTALL: Final = 1800.0
"""Debian's own packages come from the network of a Pi, onto its card."""
_LOOK: Final = 0.5
_SUITES: Final = {"12": "deb12", "13": "deb13"}
_NAMES: Final = ("harmony-agent", "harmony-updater")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Setup:
    """Parameters of a setup."""

    remote: Remote
    bundle: Path
    packages: Sequence[Path]
    folder: Path
    seconds: float


def setup(context: Context, wanted: Setup, note: Say) -> None:
    """Copy, install, join, wait. `note` hears of each step."""
    try:
        bundle = decode(read_regular(wanted.bundle, MAX_BYTES + 1))
    except OSError as error:
        raise InvalidInput(
            "FileMissing",
            f"cannot read {wanted.bundle}: {error.strerror}",
            "harmony device enroll writes it",
        ) from None
    except InvalidBundle as error:
        hint = "make it anew with harmony device rotate"
        raise InvalidInput(
            error.code, f"cannot use {wanted.bundle}: {error}", hint, error.errors
        ) from None
    remote, device = wanted.remote, bundle.device
    before = asyncio.run(_beat(context, device))
    note(f"{remote.target}: looking at it")
    packages = list(wanted.packages) or _packages(
        remote, wanted.folder, system=bundle.profile == "system"
    )
    make = ["mktemp", "--directory", f"{_FOLDER}XXXXXXXX"]
    place = remote.run(make, _STEP, "make a folder").strip()
    if not place.startswith(_FOLDER) or not place.isascii() or len(place.split()) != 1:
        hint = (
            "have its shell print nothing at the start of a login: see .bashrc and .profile there"
        )
        raise InvalidInput(
            "SetupFailed", f"cannot use {remote.target}: its answers aren't a plain login's", hint
        )
    try:
        note(f"{remote.target}: copying {', '.join(path.name for path in packages)} and the bundle")
        remote.copy([*packages, wanted.bundle], place, _INSTALL)
        note(f"{remote.target}: installing")
        debs = [f"{place}/{path.name}" for path in packages]
        install = [
            "env",
            "DEBIAN_FRONTEND=noninteractive",
            "apt-get",
            "-q",
            "-y",
            "-o",
            "DPkg::Lock::Timeout=120",
        ]
        remote.run([*install, "install", *debs], _INSTALL, "install the packages", as_root=True)
        note(f"{remote.target}: joining as {device}")
        there = f"{place}/{wanted.bundle.name}"
        remote.run(["harmony-agent", "join", there], 2 * _STEP, "join", as_root=True)
    finally:
        _remove(remote, place, note)
    asyncio.run(_first_beat(context, device, before, wanted.seconds, note))
    note(
        f"{device} is there; harmony devices shows it. Remove {wanted.bundle}: whoever has it is {device}"
    )


def _remove(remote: Remote, place: str, note: Say) -> None:
    """Remove the bundle there. A failure is told, because the bundle would stay unnoticed. It hides
    no other error.
    """
    try:
        remote.run(["rm", "--recursive", "--force", "--", place], _STEP, "remove what was copied")
    except HarmonyError as error:
        note(f"{error.message}; it has the bundle, so remove it: ssh {remote.target} rm -r {place}")


def _packages(remote: Remote, folder: Path, *, system: bool) -> list[Path]:
    """Those of `folder` that are for this Debian and machine."""
    release = dict(
        line.partition("=")[::2]
        for line in remote.run(["cat", "/etc/os-release"], _STEP, "look at it").splitlines()
    )
    suite = _SUITES.get(release.get("VERSION_ID", "").strip('"'))
    arch = remote.run(["dpkg", "--print-architecture"], _STEP, "look at it").strip()
    if suite is None:
        hint = "install one of them there; or name packages that are for it by --package"
        raise InvalidInput(
            "NoPackage", f"cannot set {remote.target} up: it is neither Debian 12 nor 13", hint
        )
    patterns = [f"{name}_*+{suite}_{arch}.deb" for name in _NAMES]
    patterns += ["harmony-agent-system_*_all.deb"] if system else []
    found = [
        max(folder.glob(pattern), key=lambda path: path.stat().st_mtime, default=None)
        for pattern in patterns
    ]
    missing = [pattern for pattern, path in zip(patterns, found, strict=True) if path is None]
    if missing:
        raise InvalidInput(
            "NoPackage",
            f"cannot find {folder}/{missing[0]}",
            "make deb builds it; or name it by --package",
        )
    return [path for path in found if path is not None]


async def _beat(context: Context, device: str) -> int:
    """Return the revision of the device's last heartbeat. 0 if there is none."""
    async with Store(context) as store:
        return (await store.get(HEARTBEAT, heartbeat_key(device))).revision


async def _first_beat(
    context: Context, device: str, before: int, seconds: float, note: Say
) -> None:
    note(f"{device}: waiting for its heartbeat")
    until = time.monotonic() + seconds
    async with Store(context) as store:
        while (await store.get(HEARTBEAT, heartbeat_key(device))).revision <= before:
            if time.monotonic() > until:
                raise Unreachable(
                    "NoHeartbeat",
                    f"{device} joined, and no heartbeat came in {seconds:g} s",
                    "on the device: journalctl -u harmony-agent",
                )
            await asyncio.sleep(_LOOK)
