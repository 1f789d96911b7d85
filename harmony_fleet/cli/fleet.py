"""`harmony fleet …`: options and help. The work is in `commands.fleet` and `commands.roster`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harmony_fleet.cli import dashboard as cli_board
from harmony_fleet.cli import key as cli_key
from harmony_fleet.cli import roster as cli_roster
from harmony_fleet.cli.options import (
    Creds,
    Insecure,
    Server,
    Timeout,
    TlsCa,
    common_of,
    guarded,
    local,
    reaching,
    seconds_of,
)

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

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
@local
def init(common: Common) -> int:
    """Make an empty roster, at generation 1, with a lineage of its own.

    \b
    harmony fleet init
    """
    from harmony_fleet.commands import roster

    return roster.init(common)


_FORMS: Final = ("table", "json", "yaml")

Devices = Annotated[
    list[str] | None,
    typer.Option("--device", "-d", metavar="NAME", help="Only at this one; may be repeated."),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Own what another lineage, or another copy, wrote.")
]
AllowPrune = Annotated[
    int | None,
    typer.Option(
        "--allow-prune",
        min=0,
        max=1000,
        metavar="N",
        help="How many resources may go at each device.",
    ),
]
AllowRemovals = Annotated[
    int | None,
    typer.Option(
        "--allow-removals", min=0, metavar="N", help="How many devices may lose a whole deployment."
    ),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow-generation",
        help="Go on from the generation that a device tells, however far ahead.",
    ),
]
Wait = Annotated[
    bool | None, typer.Option("--wait/--no-wait", help="For the devices. On when on a terminal.")
]


@app.command()
@reaching
def status(common: Common) -> int:
    """Show the roster's devices, and how many of them have each deployment.

    \b
    harmony fleet status
    """
    from harmony_fleet.commands import fleet

    return fleet.status(common)


@app.command()
@reaching
def doctor(common: Common) -> int:
    """Name every difference from the roster, and what is safe to do. Exit code 0 when it could
    look.

    \b
    harmony fleet doctor
    """
    from harmony_fleet.commands import fleet

    return fleet.doctor(common, verify=False)


@app.command()
@reaching
def verify(common: Common) -> int:
    """Look as doctor does. Exit code 1 where anything differs, or isn't managed.

    \b
    harmony fleet verify
    """
    from harmony_fleet.commands import fleet

    return fleet.doctor(common, verify=True)


@app.command()
def plan(
    ctx: typer.Context,
    *,
    device: Devices = None,
    take_over: TakeOver = False,
    allow_prune: AllowPrune = None,
    allow_removals: AllowRemovals = None,
    follow_generation: Follow = False,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
    output: Annotated[
        str,
        typer.Option(
            "-o",
            "--output",
            metavar="FORM|FILE",
            help="table, json, yaml; or a file to keep the plan in.",
        ),
    ] = "table",
) -> int:
    """Show what apply would do; change nothing. With a file, keep it for apply.

    \b
    harmony fleet plan
    harmony fleet plan -o friday.plan && harmony fleet apply friday.plan
    """
    from harmony_fleet.commands import fleet
    from harmony_fleet.rollout.fleet_plan import Scope

    form = output if output in _FORMS else "table"
    common = common_of(ctx, server, creds, tls_ca, form, insecure=insecure)
    scope = Scope(
        frozenset(device or ()), take_over, allow_prune, allow_removals, follow_generation
    )
    return guarded(common, lambda: fleet.plan(common, scope, None if output in _FORMS else output))


@app.command()
@reaching
def apply(
    common: Common,
    *,
    file: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="A plan that was kept.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="As plan.")] = False,
    device: Devices = None,
    take_over: TakeOver = False,
    allow_prune: AllowPrune = None,
    allow_removals: AllowRemovals = None,
    follow_generation: Follow = False,
    wait: Wait = None,
    timeout: Timeout = "60s",
) -> int:
    """Write what the roster says, once every device's preconditions hold.

    A plan that was kept is refused where the roster or the buckets moved on.

    \b
    harmony fleet apply
    harmony fleet apply --device pi-01 --timeout 2m
    """
    from harmony_fleet.commands import fleet
    from harmony_fleet.rollout.fleet_plan import Scope

    scope = Scope(
        frozenset(device or ()), take_over, allow_prune, allow_removals, follow_generation
    )
    if dry_run:
        return fleet.plan(common, scope, None)
    waits = sys.stdout.isatty() if wait is None else wait
    how = fleet.Apply(scope, file, seconds_of(timeout) if waits else None)
    return fleet.apply(common, how)


@app.command()
@reaching
def pull(common: Common) -> int:
    """Take the roster that was applied last, where that was from another copy of this home.

    The roster here is kept beside it, as roster.yaml.old.

    \b
    harmony fleet pull
    """
    from harmony_fleet.commands import fleet

    return fleet.pull(common)


@app.command()
@reaching
def reconcile(
    common: Common, *, allow_removals: AllowRemovals = None, timeout: Timeout = "60s"
) -> int:
    """Apply, wait for every device, and look again. Exit code 1 where anything differs then.

    \b
    harmony fleet reconcile --timeout 2m
    """
    from harmony_fleet.commands import fleet
    from harmony_fleet.rollout.fleet_plan import Scope

    how = fleet.Apply(
        Scope(allow_removals=allow_removals), wait_seconds=seconds_of(timeout), settled=True
    )
    return fleet.apply(common, how)


@app.command()
@reaching
def controller(
    common: Common,
    *,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="How often projections are reconciled.")
    ] = "30s",
) -> int:
    """Keep the fleet as its roster says, carry runs on, begin scheduled ones. Runs until it is
    ended.

    \b
    harmony fleet controller --interval 1m
    """
    from harmony_fleet.commands import controller as control

    return control.controller(common, seconds_of(interval))


app.command()(cli_board.metrics)
app.command()(cli_board.dashboard)
app.add_typer(cli_roster.device, name="device")
app.add_typer(cli_roster.deployment, name="deployment")
app.add_typer(cli_roster.schedule, name="schedule")
app.add_typer(cli_key.key, name="key")
