"""`harmony fleet key …`: options and help. The work is in `commands.keys`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import Annotated

import typer

from harmony_fleet.cli_options import Form, common_of, guarded

key = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Keys that sign manifests.")


@key.command("new")
def key_new(ctx: typer.Context, *, output: Form = "table") -> int:
    """Make a signing key; it signs from now on, beside those that sign already.

    Devices believe it once it stands in [trust] keys of their configuration.

    \b
    harmony fleet key new
    """
    from harmony_fleet.commands import keys

    common = common_of(ctx, None, None, None, output)
    return guarded(common, lambda: keys.new(common))


@key.command("list")
def key_list(ctx: typer.Context, *, output: Form = "table") -> int:
    """Show the keys, which of them sign, and how devices spell them.

    \b
    harmony fleet key list
    """
    from harmony_fleet.commands import keys

    common = common_of(ctx, None, None, None, output)
    return guarded(common, lambda: keys.show(common))


@key.command("retire")
def key_retire(
    ctx: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="ID", help="As key list shows it.")],
    undo: Annotated[bool, typer.Option("--undo", help="Have it sign again.")] = False,
    output: Form = "table",
) -> int:
    """Have a key sign no more. Only once every device trusts its successor.

    \b
    harmony fleet key retire 0f1e2d3c4b5a6978
    """
    from harmony_fleet.commands import keys

    common = common_of(ctx, None, None, None, output)
    return guarded(common, lambda: keys.retire(common, name, undo=undo))
