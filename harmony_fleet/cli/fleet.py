"""`harmony fleet …`: options and help. The work is in `commands.fleet`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.options import (
    reaching,
)

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _fleet() -> None:
    """Say in one roster what runs where, and bring it about.

    \b
    harmony fleet init
    harmony fleet device add pi-01 pi-02 --class web --generation 1
    harmony fleet deployment add web --file web.py --class web --generation 2
    harmony fleet apply
    harmony fleet verify
    """


@reaching
def status(common: Common) -> int:
    """Show how many devices have each deployment.

    \b
    harmony fleet status
    """
    from harmony_fleet.commands import fleet

    return fleet.status(common)


@reaching
def doctor(common: Common) -> int:
    """Name every difference from the roster, and what is safe to do. Exit code 0 when it could
    look.

    \b
    harmony fleet doctor
    """
    from harmony_fleet.commands import fleet

    return fleet.doctor(common, verify=False)


@reaching
def verify(common: Common) -> int:
    """Look as doctor does. Exit code 1 where anything differs, or isn't managed.

    \b
    harmony fleet verify
    """
    from harmony_fleet.commands import fleet

    return fleet.doctor(common, verify=True)


@reaching
def remove_key(
    common: Common,
    *,
    key: Annotated[str, typer.Argument(metavar="KEY", help="As doctor tells it; in quotes.")],
) -> int:
    """Remove one key of desired-state that names no deployment. No other key is touched.

    \b
    harmony fleet remove-key 'pi-01.*'
    """
    from harmony_fleet.commands import fleet

    return fleet.remove_key(common, key)
