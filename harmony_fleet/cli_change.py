"""`harmony apply`, `diff` and `delete`: options and help. The work is in `commands.change`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli_options import Deployment, Select, Timeout, reaching, seconds_of

if TYPE_CHECKING:
    from harmony_fleet.apply import Options
    from harmony_fleet.commands.common import Common

File = Annotated[str, typer.Argument(help="Manifests: .yaml, .json, .py, or - for standard input.")]
Devices = Annotated[
    list[str] | None, typer.Option("--device", "-d", metavar="NAME", help="At this device; may be repeated.")
]
LineageOption = Annotated[
    str | None,
    typer.Option("--lineage", metavar="UUID", help="Write as this authority; else $HARMONY_LINEAGE, the home's."),
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Own a deployment of another lineage from now on.")]
AllowPrune = Annotated[
    int | None,
    typer.Option("--allow-prune", min=0, max=1000, metavar="N", help="How many resources may be removed at once."),
]
Follow = Annotated[
    bool, typer.Option("--follow-generation", help="Go on from the generation that a device tells, however far ahead.")
]
Wait = Annotated[bool | None, typer.Option("--wait/--no-wait", help="Until it is so. On when on a terminal.")]


def _options(
    *,
    wait: bool | None,
    seconds: float,
    take_over: bool,
    follow: bool,
    allow_prune: int | None = None,
    dry_run: bool = False,
) -> Options:
    from harmony_fleet.apply import Options

    waits = sys.stdout.isatty() if wait is None else wait
    return Options("", take_over, allow_prune, dry_run, seconds if waits else None, follow=follow)


@reaching
def apply(
    common: Common,
    *,
    file: File,
    device: Devices = None,
    select: Select = None,
    wait: Wait = None,
    timeout: Timeout = "60s",
    allow_prune: AllowPrune = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    take_over: TakeOver = False,
    follow_generation: Follow = False,
    lineage: LineageOption = None,
) -> int:
    """Send manifests to devices, wait until it is so.

    FILE is YAML, JSON, or a Python file that defines manifest = Manifest(…), or several in manifests.
    The same content isn't written again; nothing of somebody else's is written over.

    \b
    harmony apply web.py --device pi-01
    harmony apply web.yaml --select site=home --select rack=2 --timeout 5m
    harmony apply web.yaml -d pi-01 --dry-run
    """
    from harmony_fleet.commands import change

    options = _options(
        wait=wait,
        seconds=seconds_of(timeout),
        take_over=take_over,
        follow=follow_generation,
        allow_prune=allow_prune,
        dry_run=dry_run,
    )
    choice = change.Choice(device or [], select or [])
    return change.apply(common, file, choice, options, lineage)


@reaching
def diff(
    common: Common,
    *,
    file: File,
    device: Devices = None,
    select: Select = None,
    allow_prune: AllowPrune = None,
    take_over: TakeOver = False,
    follow_generation: Follow = False,
    lineage: LineageOption = None,
) -> int:
    """Show what apply would change. Exit code 0: nothing, 1: something.

    Names, digests and plain settings are shown; the content of files and values of variables never are.

    \b
    harmony diff web.py --device pi-01
    """
    from harmony_fleet.commands import change

    how = {"take_over": take_over, "follow": follow_generation}
    options = _options(wait=False, seconds=1, allow_prune=allow_prune, dry_run=True, **how)
    choice = change.Choice(device or [], select or [])
    return change.diff(common, file, choice, options, lineage)


@reaching
def delete(
    common: Common,
    *,
    deployment: Deployment,
    device: Devices = None,
    select: Select = None,
    wait: Wait = None,
    timeout: Timeout = "60s",
    take_over: TakeOver = False,
    follow_generation: Follow = False,
    lineage: LineageOption = None,
) -> int:
    """Take a deployment off devices.

    The devices remove what it owns; then its key goes. The actual state stays, as Removed.

    \b
    harmony delete web --device pi-01
    harmony delete web --select site=home --no-wait
    """
    from harmony_fleet.commands import change

    options = _options(wait=wait, seconds=seconds_of(timeout), take_over=take_over, follow=follow_generation)
    choice = change.Choice(device or [], select or [])
    return change.delete(common, deployment, choice, options, lineage)
