"""`harmony device …`: a device's credentials, on disk and then at the servers; its setup. No credential
is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harmony_fleet.authority import device_setup, enroll, live, sync
from harmony_fleet.authority.device_setup import Setup
from harmony_fleet.authority.enrolled import FIELDS, Enrolled, EnrollOptions
from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.commands.server import authority_of
from harmony_fleet.errors import ExitCode, HarmonyError, Unreachable
from harmony_fleet.output import render
from harmony_fleet.output.render import Output, plain

_POLL_SECONDS: Final = 1.0
_UNSAID: Final = "as the device has it"
_FORGOTTEN: Final = "it was enrolled by a version that remembered no settings"


@dataclass(frozen=True, slots=True)
class OldCredentials:
    """Fate of the previous credentials: withdrawn at once, or up to `seconds` after the new ones
    are used.
    """

    at_once: bool = False
    seconds: float | None = None


def enroll_device(common: Common, device: str, asked: EnrollOptions, path: Path) -> ExitCode:
    """`harmony device enroll`."""
    context, authority = authority_of(common)
    with authority.locked():
        reached = sync.told(lambda: asyncio.run(sync.learn(authority, context)), needed=False)
        enroll.write_bundle(enroll.enroll(authority, context.home, device, asked), path)
        reached = reached and sync.told(
            lambda: asyncio.run(sync.ready(authority, context)), needed=False
        )
    if not reached:
        note(
            "the servers weren't reached; harmony server push, or the first apply to it, makes up for that"
        )
    _say_next(device, path)
    return ExitCode.DONE


def rotate(
    common: Common, device: str, asked: EnrollOptions, path: Path, old: OldCredentials
) -> ExitCode:
    """`harmony device rotate`."""
    context, authority = authority_of(common)
    with authority.locked():
        sync.told(lambda: asyncio.run(sync.learn(authority, context)), needed=False)
        enroll.write_bundle(
            enroll.rotate(authority, context.home, device, asked, at_once=old.at_once), path
        )
        if old.at_once:
            sync.told(lambda: asyncio.run(sync.push(authority, context)))
        else:
            sync.told(lambda: asyncio.run(sync.learn(authority, context)), needed=False)
        issued = authority.state.devices.get(device)
    if issued is not None:
        _say_kept(device, issued.settings)
    _say_next(device, path)
    if old.at_once:
        note(f"what {device} had before is refused")
    elif old.seconds is None:
        note(f"what it had before holds until: harmony device finish {device}")
    else:
        return finish(common, device, old.seconds)
    return ExitCode.DONE


def finish(common: Common, device: str, seconds: float) -> ExitCode:
    """`harmony device finish`: withdraw the old credentials once the new ones are in use.

    If they aren't in use: exit code 1 after one look, 4 after waiting.
    """
    context, authority = authority_of(common)
    issued = enroll.known(authority, device)
    until = time.monotonic() + seconds
    while issued.user not in asyncio.run(live.connected(authority, context)):
        if time.monotonic() > until:
            late = f" within {seconds:g} s" if seconds else ""
            raise (Unreachable if seconds else HarmonyError)(
                "NotConnected",
                f"{device} hasn't connected with its new credentials{late}, so the ones before still hold",
                f"join it with the new bundle, then: harmony device finish {device}",
            )
        time.sleep(_POLL_SECONDS)
    with authority.locked():
        sync.told(lambda: asyncio.run(sync.learn(authority, context)), needed=False)
        count = enroll.settle(authority, device, issued.user)
        sync.told(lambda: asyncio.run(sync.push(authority, context)))
    note(f"{device} uses its new credentials; {count} before them are refused")
    return ExitCode.DONE


def revoke(common: Common, device: str) -> ExitCode:
    """`harmony device revoke`."""
    context, authority = authority_of(common)
    with authority.locked():
        with contextlib.suppress(
            HarmonyError
        ):  # what is decided is told below, and so is what is wrong here
            asyncio.run(sync.learn(authority, context))
        enroll.revoke(authority, device)
        sync.told(lambda: asyncio.run(sync.revoked(authority, context, device)))
    note(
        f"{device} is refused from now on, its connection is cut, and what it wrote is taken away; what it runs goes on"
    )
    return ExitCode.DONE


def list_devices(common: Common) -> ExitCode:
    """`harmony device list`: who has credentials."""
    _context, authority = authority_of(common)
    state = authority.state
    if common.output is not Output.TABLE:
        write(
            [{"device": name, "replaced": len(one.before)} for name, one in state.devices.items()],
            common.output,
        )
    elif state.devices:
        rows = [
            [plain(name), plain(str(len(one.before)))]
            for name, one in sorted(state.devices.items())
        ]
        render.grid(["DEVICE", "REPLACED THAT HOLD"], rows, render.out())
    else:
        note("no device has credentials: harmony device enroll pi-01")
    return ExitCode.DONE


def show(common: Common, device: str) -> ExitCode:
    """`harmony device show`: what it was enrolled with."""
    _context, authority = authority_of(common)
    issued = enroll.known(authority, device)
    settings = issued.settings
    if common.output is not Output.TABLE:
        said = settings.said() if settings is not None else {}
        values = {name: said.get(name) for name in FIELDS}
        told = {"device": device, "remembered": settings is not None, **values}
        write({**told, "replaced": len(issued.before)}, common.output)
        return ExitCode.DONE
    rows = [[plain(name), plain(words, "")] for name, words in _settings(settings)]
    render.grid(["ENROLLED WITH", device], rows, render.out())
    if settings is None:
        note(f"{_FORGOTTEN}; say them once: harmony device rotate {device} --label NAME=VALUE")
    return ExitCode.DONE


def _settings(settings: Enrolled | None) -> Iterator[tuple[str, str]]:
    """Each setting as a word and what was said."""
    said = settings.said() if settings is not None else {}
    for name in FIELDS:
        value = said.get(name)
        if isinstance(value, dict):
            value = [f"{key}={text}" for key, text in value.items()] or ["-"]
        yield name, " ".join(value) if isinstance(value, list) else str(value or _UNSAID)


def _say_kept(device: str, settings: Enrolled | None) -> None:
    """Tell what the new bundle has of the enrolment."""
    if settings is None:
        note(f"{device}: {_FORGOTTEN}, and the bundle has none of it: a wiped device joins bare")
        return
    words = [f"{name} {words}" for name, words in _settings(settings) if words != _UNSAID]
    if words:
        note(f"{device} is enrolled with {', '.join(words)}")


def _say_next(device: str, path: Path) -> None:
    name = shlex.quote(str(path))
    note(f"{path} is all that {device} needs, and a secret: whoever has it is {device}")
    note(
        f"next, on the device as root: harmony-agent join {name}; or from here: harmony device setup pi@HOST {name}"
    )


def setup(common: Common, wanted: Setup) -> ExitCode:
    """`harmony device setup`."""
    device_setup.setup(common.context(), wanted, note)
    return ExitCode.DONE
