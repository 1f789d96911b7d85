"""`harmony server …`: the authority on disk, then the servers. No credential is shown."""

from __future__ import annotations

import asyncio
import dataclasses

from harmony_fleet.authority import enroll, setup, sync
from harmony_fleet.authority.authority_store import FOLDER, Authority
from harmony_fleet.authority.nodes import CONFIG, UNIT
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.commands.common import Common, note, write
from harmony_fleet.context import Context
from harmony_fleet.errors import ExitCode
from harmony_fleet.manifests import signing_keys
from harmony_fleet.output.render import Output


def init(common: Common, wanted: ServerRequest) -> ExitCode:
    """`harmony server init`."""
    home = common.home()
    signs = bool(
        signing_keys.trusted_keys(home)
    )  # a key that can't be used is told before anything is made
    made = setup.init(home, wanted)
    if not signs:
        signing_keys.new(home)
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
        f"the authority is in {home / FOLDER}, the manifests' signing key in {signing_keys.keys_folder(home)}:"
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
    context, authority = authority_of(common)
    with authority.locked():
        asyncio.run(sync.push(authority, context, buckets=True))
    note("the servers have the accounts and the buckets")
    return ExitCode.DONE


def objects(common: Common, buckets: list[str]) -> ExitCode:
    """`harmony server objects`: let devices read object stores."""
    context, authority = authority_of(common)
    with authority.locked():
        if buckets:
            sync.told(lambda: asyncio.run(sync.learn(authority, context)), needed=False)
            enroll.allow_objects(authority, buckets)
            sync.told(lambda: asyncio.run(sync.push(authority, context)))
        names = list(authority.state.objects)
    if common.output is not Output.TABLE:
        write(names, common.output)
    else:
        note(f"devices may read the objects of: {', '.join(names) or 'no bucket'}")
    return ExitCode.DONE


def authority_of(common: Common) -> tuple[Context, Authority]:
    """The context, and the authority of this operator's home."""
    context = common.context()
    return context, Authority.load(context.home)
