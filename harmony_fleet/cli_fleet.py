"""`harmony fleet …`: options and help. The work is in `commands.fleet` and `commands.roster`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import typer

from harmony_fleet import cli_roster
from harmony_fleet.cli_options import Form, common_of, guarded

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _fleet() -> None:
    """One roster says what runs where; everything else follows from it.

    \b
    harmony fleet init
    harmony fleet device add pi-01 pi-02 --class web --generation 1
    harmony fleet deployment add web --file web.py --class web --generation 2
    harmony fleet apply
    harmony fleet verify
    """


@app.command()
def init(ctx: typer.Context, *, output: Form = "table") -> int:
    """Make an empty roster, at generation 1, with a lineage of its own.

    \b
    harmony fleet init
    """
    from harmony_fleet.commands import roster

    common = common_of(ctx, None, None, None, output)
    return guarded(common, lambda: roster.init(common))


app.add_typer(cli_roster.device, name="device")
app.add_typer(cli_roster.deployment, name="deployment")
app.add_typer(cli_roster.schedule, name="schedule")
