"""`harmony fleet key …`: options and help. The work is in `commands.key`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.options import local

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

key = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keys that sign manifests.")


@key.command("new")
@local
def key_new(common: Common) -> int:
    """Make a signing key, which signs from now on.

    It signs beside those that sign already.

    Devices believe it once it stands in [trust] keys of their configuration.

    \b
    harmony fleet key new
    """
    from harmony_fleet.commands import key as keys

    return keys.new(common)


@key.command("list")
@local
def key_list(common: Common) -> int:
    """Show the keys, which of them sign, and how devices spell them.

    \b
    harmony fleet key list
    """
    from harmony_fleet.commands import key as keys

    return keys.show(common)


@key.command("retire")
@local
def key_retire(
    common: Common,
    *,
    name: Annotated[str, typer.Argument(metavar="ID", help="As key list shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Have it sign again.")] = False,
) -> int:
    """Have a key sign no more. Only once every device trusts its successor.

    \b
    harmony fleet key retire 0f1e2d3c4b5a6978
    """
    from harmony_fleet.commands import key as keys

    return keys.retire(common, name, undo=undo)
