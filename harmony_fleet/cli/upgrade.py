"""`harmony upgrade …`: options and help. The work is in `commands.upgrade`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import reaching, seconds_of

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

_WEEK: Final = 7 * 86_400.0
RunName = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or how it begins.")]


@app.callback()
def _upgrade() -> None:
    """Upgrade the packages of many devices, in waves.

    \b
    harmony upgrade start --select site=home --deadline 2h --max-unavailable 2 --canary 1
    harmony upgrade watch 3f2a
    harmony upgrade list
    """


@app.command()
@reaching
def start(
    common: Common,
    *,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="By when all must be done: 2h, 90m.")
    ],
    max_unavailable: Annotated[
        int, typer.Option("--max-unavailable", metavar="N", help="Devices at once.")
    ],
    canary: Annotated[
        int | None, typer.Option("--canary", metavar="N", help="This many alone in a first wave.")
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            "--select", "-l", metavar="LABEL=VALUE", help="Devices with all these labels."
        ),
    ] = None,
    device_class: Annotated[
        str | None, typer.Option("--class", metavar="CLASS", help="Devices of this class.")
    ] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(
            "--device",
            "-d",
            metavar="NAME",
            help="May be repeated.",
            autocompletion=complete.devices,
        ),
    ] = None,
    everywhere: Annotated[
        bool, typer.Option("--all", help="Every enabled device of the roster.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the waves; write nothing.")
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch/--no-watch", help="Carry it on to its end.")
    ] = True,
) -> int:
    """Start a run, and carry it on to its end. Exit code 0: every device succeeded; 1: one or more did not.

    A failed wave stops the next; what was upgraded is not rolled back.

    \b
    harmony upgrade start --select site=home --deadline 2h --max-unavailable 2 --canary 1
    harmony upgrade start --all --deadline 90m --max-unavailable 5 --dry-run
    """
    from harmony_fleet.commands import upgrade

    how = upgrade.Start(
        device or [],
        select or [],
        device_class,
        everywhere,
        seconds_of(deadline, _WEEK),
        max_unavailable,
        canary,
        dry_run,
        watch,
    )
    return upgrade.start(common, how)


@app.command()
@reaching
def watch(common: Common, *, name: RunName) -> int:
    """Carry a run on, from any machine. Several may: no attempt is made twice.

    \b
    harmony upgrade watch 3f2a
    """
    from harmony_fleet.commands import upgrade

    return upgrade.watch(common, name)


@app.command("list")
@reaching
def list_runs(common: Common) -> int:
    """Show all runs.

    \b
    harmony upgrade list
    """
    from harmony_fleet.commands import upgrade

    return upgrade.list_runs(common)


@app.command()
@reaching
def show(common: Common, *, name: RunName) -> int:
    """Show a run, device by device. Exit code 1 where it failed or was cancelled.

    \b
    harmony upgrade show 3f2a
    """
    from harmony_fleet.commands import upgrade

    return upgrade.show(common, name)


@app.command()
@reaching
def cancel(common: Common, *, name: RunName) -> int:
    """Begin no further wave. What began goes on: an active apt is never stopped.

    \b
    harmony upgrade cancel 3f2a
    """
    from harmony_fleet.commands import upgrade

    return upgrade.cancel(common, name)
