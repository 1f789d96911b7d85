"""`harmony server …`: options and help. The work is in `commands.server`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.options import local, reaching

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _server() -> None:
    """Make the fleet's NATS servers, and tell them what was decided.

    \b
    harmony server init nats --host nats.example.org
    harmony server push
    harmony server objects assets
    """


@app.command()
@local
def init(
    common: Common,
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder for the server's files.")
    ],
    host: Annotated[
        list[str],
        typer.Option(
            "--host", metavar="HOST", help="By which it is reached; three of them are a cluster."
        ),
    ],
    name: Annotated[str, typer.Option(metavar="NAME", help="What the fleet is called.")] = "fleet",
    at: Annotated[
        str, typer.Option("--at", metavar="PATH", help="Where DIR will be on the server, if moved.")
    ] = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="For clients.")] = 4222,
    route_port: Annotated[
        int, typer.Option("--route-port", min=1, max=65535, help="Between the servers.")
    ] = 6222,
    objects: Annotated[
        list[str] | None,
        typer.Option("--objects", metavar="BUCKET", help="An object store that devices may read."),
    ] = None,
    max_disk: Annotated[
        str, typer.Option("--max-disk", metavar="SIZE", help="That JetStream may take.")
    ] = "4GB",
    max_memory: Annotated[
        str, typer.Option("--max-memory", metavar="SIZE", help="The same.")
    ] = "64MB",
) -> int:
    """Make an authority and its servers' configuration.

    TLS by a certificate authority of its own, what is acknowledged is on the disk, each device for
    itself alone. Writes the context file, so that harmony finds the servers. Nothing that exists is
    written over.

    \b
    harmony server init nats --host nats.example.org
    harmony server init nats --host n1.lan --host n2.lan --host n3.lan --at /etc/harmony-nats
    """
    from harmony_fleet.authority.nodes import Bounds
    from harmony_fleet.authority.setup import ServerRequest, checked
    from harmony_fleet.commands import server

    bounds = Bounds(memory=max_memory, disk=max_disk)
    wanted = ServerRequest(
        name,
        folder.absolute(),
        tuple(host),
        at,
        port,
        route_port,
        tuple(objects or ("files",)),
        bounds,
    )
    return server.init(common, checked(wanted))


@app.command()
@reaching
def push(common: Common) -> int:
    """Give the servers the accounts as they are here, and the buckets. May be repeated.

    \b
    harmony server push
    """
    from harmony_fleet.commands import server

    return server.push(common)


@app.command()
@reaching
def objects(
    common: Common,
    *,
    bucket: Annotated[
        list[str] | None, typer.Argument(metavar="BUCKET", help="Devices may read it, too.")
    ] = None,
) -> int:
    """Show which object stores devices may read, or let them read more.

    \b
    harmony server objects
    harmony server objects assets
    """
    from harmony_fleet.commands import server

    return server.objects(common, bucket or [])
