"""`harmony fleet plan`, `apply`, `pull`, `reconcile` and `controller`: options and help. The work is in
`commands.rollout`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer

from harmony_fleet.cli.options import (
    Creds,
    Follow,
    Insecure,
    Server,
    Timeout,
    TlsCa,
    common_of,
    guarded,
    reaching,
    seconds_of,
)

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

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


Wait = Annotated[
    bool | None, typer.Option("--wait/--no-wait", help="For the devices. On when on a terminal.")
]


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
    from harmony_fleet.commands import rollout
    from harmony_fleet.rollout.fleet_plan import Scope

    form = output if output in _FORMS else "table"
    common = common_of(ctx, server, creds, tls_ca, form, insecure=insecure)
    scope = Scope(
        frozenset(device or ()), take_over, allow_prune, allow_removals, follow_generation
    )
    return guarded(
        common, lambda: rollout.plan(common, scope, None if output in _FORMS else output)
    )


@reaching
def apply(
    common: Common,
    *,
    file: Annotated[
        str | None, typer.Argument(metavar="[PLAN]", help="A plan that was kept.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="As plan, and ask the server if it would take it.")
    ] = False,
    device: Devices = None,
    take_over: TakeOver = False,
    allow_prune: AllowPrune = None,
    allow_removals: AllowRemovals = None,
    follow_generation: Follow = False,
    wait: Wait = None,
    timeout: Timeout = "60s",
) -> int:
    """Write what the roster says.

    Nothing is written before every device's preconditions hold. A plan that was kept is refused
    where the roster or the buckets moved on.

    \b
    harmony fleet apply
    harmony fleet apply --device pi-01 --timeout 2m
    """
    from harmony_fleet.commands import rollout
    from harmony_fleet.rollout.fleet_plan import Scope

    scope = Scope(
        frozenset(device or ()), take_over, allow_prune, allow_removals, follow_generation
    )
    if dry_run:
        return rollout.plan(common, scope, None, dry_run=True)
    waits = sys.stdout.isatty() if wait is None else wait
    how = rollout.Apply(scope, file, seconds_of(timeout) if waits else None)
    return rollout.apply(common, how)


@reaching
def pull(common: Common) -> int:
    """Take the roster that was applied last from another copy.

    The roster here is kept beside it, as roster.yaml.old.

    \b
    harmony fleet pull
    """
    from harmony_fleet.commands import rollout

    return rollout.pull(common)


@reaching
def reconcile(
    common: Common, *, allow_removals: AllowRemovals = None, timeout: Timeout = "60s"
) -> int:
    """Apply, wait for every device, and look again. Exit code 1 where anything differs then.

    \b
    harmony fleet reconcile --timeout 2m
    """
    from harmony_fleet.commands import rollout
    from harmony_fleet.rollout.fleet_plan import Scope

    how = rollout.Apply(
        Scope(allow_removals=allow_removals), wait_seconds=seconds_of(timeout), settled=True
    )
    return rollout.apply(common, how)


@reaching
def controller(
    common: Common,
    *,
    interval: Annotated[
        str, typer.Option(metavar="TIME", help="How often projections are reconciled.")
    ] = "30s",
) -> int:
    """Keep the fleet as its roster says, until it is ended.

    It carries runs on, and begins scheduled ones.

    \b
    harmony fleet controller --interval 1m
    """
    from harmony_fleet.commands import rollout

    return rollout.controller(common, seconds_of(interval))
