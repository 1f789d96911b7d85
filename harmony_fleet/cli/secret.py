"""`harmony secret …`: options and help. The work is in `commands.secret`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.change import Devices
from harmony_fleet.cli.options import Select, listing, reaching

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(metavar="NAME", help="The secret's name.")]


@app.callback()
def _group() -> None:
    """Give devices values that nobody else can read.

    \b
    harmony secret set mqtt-password --device pi-01 < password.txt
    harmony secret list
    harmony secret rm mqtt-password --device pi-01
    """


@app.command("set")
@reaching
def set_(
    common: Common,
    *,
    name: Name,
    device: Devices = None,
    select: Select = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", metavar="PATH", help="Take the bytes of this file."),
    ] = None,
    accept_key: Annotated[
        bool,
        typer.Option("--accept-key", help="Take keys for which nothing vouches, or that changed."),
    ] = False,
) -> int:
    """Seal a value for devices, or another one in its place.

    The value comes from standard input, without the newline at its end, or from a file as it is. On
    a terminal it is asked for. It is sealed here for each device by itself, and no copy is kept:
    what uses it on the device is written anew or restarted, once.

    \b
    harmony secret set mqtt-password --device pi-01 < password.txt
    pass show mqtt | harmony secret set mqtt-password --select site=home
    harmony secret set tls-key --device pi-01 --file server.key
    """
    from harmony_fleet.commands import secret
    from harmony_fleet.commands.change import Choice

    return secret.set_(
        common, name, Choice(device or (), select or ()), file, accept_key=accept_key
    )


@app.command("list")
@listing
def list_(common: Common, *, device: Devices = None) -> int:
    """Show names of secrets, when each was set, and what uses it.

    \b
    harmony secret list
    harmony secret list --device pi-01
    """
    from harmony_fleet.commands import secret

    return secret.list_(common, device or ())


@app.command()
@reaching
def rm(
    common: Common,
    *,
    name: Name,
    device: Devices = None,
    select: Select = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also where a desired deployment names it.")
    ] = False,
) -> int:
    """Take a secret back. Refused with 5 while a desired deployment names it.

    The device forgets it. What was made with it stays as it is.

    \b
    harmony secret rm mqtt-password --device pi-01
    """
    from harmony_fleet.commands import secret
    from harmony_fleet.commands.change import Choice

    return secret.rm(common, name, Choice(device or (), select or ()), force=force)
