"""`harmony tree` and `events`: options and help. The work is in `commands.watch`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import reaching
from harmony_fleet.cli.read import MaybeDeployment, MaybeDevice

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common


@reaching
def tree(
    common: Common,
    *,
    device: Annotated[str, typer.Argument(metavar="DEVICE", autocompletion=complete.devices)],
) -> int:
    """Show a device's deployments, resources and what waits for what.

    A resource stands below the one that it comes after. Exit code 0: all converged, 1: not all.

    \b
    harmony tree pi-01
    harmony tree pi-01 -o json
    """
    from harmony_fleet.commands import watch

    return watch.tree(common, device)


@reaching
def events(
    common: Common,
    *,
    deployment: MaybeDeployment = None,
    device: MaybeDevice = None,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=0, max=100_000, help="How many from the end.")
    ] = 100,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="And each that comes, until Ctrl-C.")
    ] = False,
) -> int:
    """Show what happened on devices, and with -f as it happens.

    Changes of statuses, rejections, drift, devices that fall silent.

    Of what was before, NATS holds each deployment's newest status: its last change is shown. With
    -f nothing that a device tells is left out. Times are the server's. With -o json each event is a
    line of its own.

    \b
    harmony events
    harmony events web --device pi-01 -f
    harmony events -f -n 0 -o json
    """
    from harmony_fleet.commands import watch

    return watch.events(common, watch.Wanted(device, deployment, lines, follow))
