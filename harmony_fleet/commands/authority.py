"""`harmony server …` and `harmony device …`: the authority on disk, then the servers. No credential
is shown.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harmony_fleet.authority import enroll, live, setup, shared
from harmony_fleet.authority.authority_store import FOLDER, Authority
from harmony_fleet.authority.enroll import EnrollOptions
from harmony_fleet.authority.nodes import CONFIG, UNIT
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.authority.shared import Told
from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.context import Context
from harmony_fleet.errors import ExitCode, HarmonyError, InvalidInput, Unreachable
from harmony_fleet.manifests import signing
from harmony_fleet.nats import buckets as buckets_of
from harmony_fleet.nats.connection import Connection
from harmony_fleet.nats.kv import Store
from harmony_fleet.output import render
from harmony_fleet.output.render import Output, plain
from scores.keys import DESIRED

_POLL_SECONDS: Final = 1.0
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class OldCredentials:
    """Fate of the previous credentials: withdrawn at once, or up to `seconds` after the new ones
    are used.
    """

    at_once: bool = False
    seconds: float | None = None


def init(common: Common, wanted: ServerRequest) -> ExitCode:
    """`harmony server init`."""
    home = common.home()
    signs = bool(
        signing.trusted_keys(home)
    )  # a key that can't be used is told before anything is made
    made = setup.init(home, wanted)
    if not signs:
        signing.new(home)
    if common.output is not Output.TABLE:
        write(
            {
                "authority": str(home / FOLDER),
                "servers": [dataclasses.asdict(node) for node in made],
            },
            common.output,
        )
        return ExitCode.DONE
    note(
        f"the authority is in {home / FOLDER}, the manifests' signing key in {signing.keys_folder(home)}:"
    )
    note("keep a copy of both off this machine; whoever has them has the fleet")
    note(f"{home / setup.CONTEXT} says where the servers are, so harmony needs no --server")
    for node in made:
        place = wanted.folder if len(made) == 1 else wanted.folder / node.name
        note(
            f"next: have {place} at {node.at} on {node.host}, and run there: nats-server -c {node.at}/{CONFIG}"
        )
        note(
            f"      or as a service: {node.at}/{UNIT} is a systemd unit, for a user harmony-nats that owns the folder"
        )
    note("then: harmony server push; harmony device enroll pi-01")
    return ExitCode.DONE


def push(common: Common) -> ExitCode:
    """`harmony server push`: the servers get the accounts as they are here, and have the
    buckets.
    """
    context, authority = _authority(common)
    with authority.locked():
        asyncio.run(_push(authority, context, buckets=True))
    note("the servers have the accounts and the buckets")
    return ExitCode.DONE


async def _push(authority: Authority, context: Context, *, buckets: bool = False) -> None:
    """Learn what other copies of this home decided, then tell all of it. What another tells
    meanwhile isn't undone.
    """
    told = await shared.account(authority, context)
    async with Store(context) as store:
        await store.ensure_buckets(context.replicas)
        await _agreed(authority, context, store, told)
        gone = await shared.gone(authority, store) if buckets else []
    if buckets:
        async with Store(context) as store, Connection(context) as connection:
            await buckets_of.renew(connection)
            await buckets_of.index(connection, await store.entries(DESIRED))
            await live.drop_readers(connection)
            for device in gone:
                await buckets_of.forget(connection, device)


async def _agreed(authority: Authority, context: Context, store: Store, told: Told) -> None:
    for _ in range(_TRIES):
        await shared.agree(authority, store, told)
        await live.push(authority, context)
        told = await shared.account(authority, context)
        if shared.holds(authority, told):
            return
    raise Unreachable(
        "AccountsRefused",
        "cannot change the accounts: another copy does so all the time",
        "try again",
    )


async def _learn(authority: Authority, context: Context) -> None:
    told = await shared.account(authority, context)
    async with Store(context) as store:
        await store.ensure_buckets(context.replicas)
        await shared.agree(authority, store, told)


def objects(common: Common, buckets: list[str]) -> ExitCode:
    """`harmony server objects`: let devices read object stores."""
    context, authority = _authority(common)
    with authority.locked():
        if buckets:
            _tell(lambda: asyncio.run(_learn(authority, context)), needed=False)
            enroll.allow_objects(authority, buckets)
            _tell(lambda: asyncio.run(_push(authority, context)))
        names = list(authority.state.objects)
    if common.output is not Output.TABLE:
        write(names, common.output)
    else:
        note(f"devices may read the objects of: {', '.join(names) or 'no bucket'}")
    return ExitCode.DONE


def enroll_device(common: Common, device: str, asked: EnrollOptions, path: Path) -> ExitCode:
    """`harmony device enroll`."""
    context, authority = _authority(common)
    with authority.locked():
        reached = _tell(lambda: asyncio.run(_learn(authority, context)), needed=False)
        enroll.write_bundle(enroll.enroll(authority, context.home, device, asked), path)
        reached = reached and _tell(lambda: asyncio.run(_ready(authority, context)), needed=False)
    if not reached:
        note(
            "the servers weren't reached; harmony server push, or the first apply to it, makes up for that"
        )
    _say_next(device, path)
    return ExitCode.DONE


async def _ready(authority: Authority, context: Context) -> None:
    await _learn(authority, context)
    async with Connection(context) as connection:
        await buckets_of.renew(connection)


def rotate(
    common: Common, device: str, asked: EnrollOptions, path: Path, old: OldCredentials
) -> ExitCode:
    """`harmony device rotate`."""
    context, authority = _authority(common)
    with authority.locked():
        _tell(lambda: asyncio.run(_learn(authority, context)), needed=False)
        enroll.write_bundle(
            enroll.rotate(authority, context.home, device, asked, at_once=old.at_once), path
        )
        if old.at_once:
            _tell(lambda: asyncio.run(_push(authority, context)))
        else:
            _tell(lambda: asyncio.run(_learn(authority, context)), needed=False)
    _say_next(device, path)
    if old.at_once:
        note(f"what {device} had before is refused")
    elif old.seconds is None:
        note(f"what it had before holds until: harmony device finish {device}")
    else:
        return finish(common, device, old.seconds)
    return ExitCode.DONE


def finish(common: Common, device: str, seconds: float) -> ExitCode:
    """`harmony device finish`: withdraw what was replaced, once what replaces it is in use.

    Where it isn't: exit code 1 if that was only looked for, 4 if it was waited for.
    """
    context, authority = _authority(common)
    issued = authority.state.devices.get(device)
    if issued is None:
        raise InvalidInput(
            "NotEnrolled", f"{device} has no credentials", f"harmony device enroll {device}"
        )
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
        _tell(lambda: asyncio.run(_learn(authority, context)), needed=False)
        count = enroll.settle(authority, device, issued.user)
        _tell(lambda: asyncio.run(_push(authority, context)))
    note(f"{device} uses its new credentials; {count} before them are refused")
    return ExitCode.DONE


def revoke(common: Common, device: str) -> ExitCode:
    """`harmony device revoke`."""
    context, authority = _authority(common)
    with authority.locked():
        with contextlib.suppress(
            HarmonyError
        ):  # what is decided is told below, and so is what is wrong here
            asyncio.run(_learn(authority, context))
        enroll.revoke(authority, device)
        _tell(lambda: asyncio.run(_revoked(authority, context, device)))
    note(
        f"{device} is refused from now on, its connection is cut, and what it wrote is taken away; what it runs goes on"
    )
    return ExitCode.DONE


async def _revoked(authority: Authority, context: Context, device: str) -> None:
    await _push(authority, context)
    async with Connection(context) as connection:
        await buckets_of.forget(connection, device)


def enrolled(common: Common) -> ExitCode:
    """`harmony device list`: who has credentials."""
    _context, authority = _authority(common)
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


def _authority(common: Common) -> tuple[Context, Authority]:
    context = common.context()
    return context, Authority.load(context.home)


def _tell(work: Callable[[], None], *, needed: bool = True) -> bool:
    """Tell the servers. If they can't be told now, say so, and say what has to be done later."""
    try:
        work()
    except Unreachable as error:
        if needed:
            raise Unreachable(
                error.code,
                f"decided, but the servers don't know it yet: {error.message}",
                "harmony server push",
            ) from None
        return False
    return True


def _say_next(device: str, path: Path) -> None:
    name = shlex.quote(str(path))
    note(f"{path} is all that {device} needs, and a secret: whoever has it is {device}")
    note(
        f"next, on the device as root: harmony-agent join {name}; or from here: harmony device setup pi@HOST {name}"
    )
