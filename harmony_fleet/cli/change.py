"""`harmony apply`, `diff`, `pause`, `delete`…: options and help. The work is in `commands.change` and
`commands.pause`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import (
    Deployment,
    Follow,
    Select,
    Timeout,
    Variables,
    reaching,
    seconds_of,
)

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common
    from harmony_fleet.rollout.apply import Options

File = Annotated[str, typer.Argument(help="Manifests: .yaml, .json, .py, or - for standard input.")]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        "-d",
        metavar="NAME",
        help="At this device; may be repeated.",
        autocompletion=complete.devices,
    ),
]
LineageOption = Annotated[
    str | None,
    typer.Option(
        "--lineage",
        metavar="UUID",
        help="Write as this authority; else $HARMONY_LINEAGE, the home's.",
    ),
]
TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Own a deployment of another lineage from now on.")
]
AllowPrune = Annotated[
    int | None,
    typer.Option(
        "--allow-prune",
        min=0,
        max=1000,
        metavar="N",
        help="How many resources may be removed at once.",
    ),
]
Leave = Annotated[
    list[str] | None,
    typer.Option(
        "--leave",
        metavar="KEY",
        help="Give this one up as it is: File/motd; repeatable.",
        autocompletion=complete.resources,
    ),
]
Wait = Annotated[
    bool | None,
    typer.Option("--wait/--no-wait", help="Wait until it is applied. On by default on a terminal."),
]


def _options(
    *,
    wait: bool | None,
    seconds: float,
    take_over: bool,
    follow: bool,
    allow_prune: int | None = None,
    dry_run: bool = False,
) -> Options:
    from harmony_fleet.rollout.apply import Options

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
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Show what would change, or be refused by the server; write nothing."
        ),
    ] = False,
    take_over: TakeOver = False,
    follow_generation: Follow = False,
    lineage: LineageOption = None,
    variable: Variables = None,
) -> int:
    """Send manifests to devices, and wait until they are applied.

    FILE is YAML or JSON of a manifest, or of a list of Scores, whose deployment has the file's
    name; or Python that defines manifest, manifests or scores. Its {$var: NAME} is the device's
    name (device), one of its labels (labels.site), or a --variable. The same content isn't written
    again; nothing of somebody else's is written over.

    \b
    harmony apply web.py --device pi-01
    harmony apply web.yaml --select site=home --select rack=2 --timeout 5m
    harmony apply web.yaml -d pi-01 --variable port=8080 --dry-run
    """
    from harmony_fleet.commands import change
    from harmony_fleet.manifests.variables import parse_variables

    options = _options(
        wait=wait,
        seconds=seconds_of(timeout),
        take_over=take_over,
        follow=follow_generation,
        allow_prune=allow_prune,
        dry_run=dry_run,
    )
    choice = change.Choice(device or [], select or [])
    wanted = change.Wanted(file, parse_variables(variable or []))
    return change.apply(common, wanted, choice, options, lineage)


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
    variable: Variables = None,
) -> int:
    """Show what apply would change. Exit code 0: nothing, 1: something.

    Names, digests and plain settings are shown; the content of files and values of variables never
    are.

    \b
    harmony diff web.py --device pi-01
    """
    from harmony_fleet.commands import change
    from harmony_fleet.manifests.variables import parse_variables

    how = {"take_over": take_over, "follow": follow_generation}
    options = _options(wait=False, seconds=1, allow_prune=allow_prune, dry_run=True, **how)
    choice = change.Choice(device or [], select or [])
    wanted = change.Wanted(file, parse_variables(variable or []))
    return change.diff(common, wanted, choice, options, lineage)


@reaching
def adopt(
    common: Common,
    *,
    place: Annotated[
        str, typer.Argument(metavar="DEVICE/DEPLOYMENT", help="Whose memory was lost.")
    ],
    wait: Wait = None,
    timeout: Timeout = "60s",
    remains: Annotated[
        bool,
        typer.Option(
            "--remains",
            help="Also take back what the manifest doesn't want, so that it is removed.",
        ),
    ] = False,
    leave: Leave = None,
    lineage: LineageOption = None,
) -> int:
    """Have a device that lost its memory take back what it had.

    A status of LedgerLost says that the device no longer knows what is its own. It has already taken
    back what is exactly as its manifest wants it. This command has it take back the rest, also what
    differs by now.

    \b
    harmony adopt pi-01/web
    harmony adopt pi-01/web --leave File/motd
    """
    from harmony_fleet.commands import change
    from harmony_fleet.rollout.remains import Decision

    options = _options(wait=wait, seconds=seconds_of(timeout), take_over=False, follow=False)
    return change.adopt(
        common, place, replace(options, decide=Decision(remains, leave or ())), lineage
    )


Place = Annotated[
    str,
    typer.Argument(
        metavar="DEVICE[/DEPLOYMENT]",
        help="One deployment, or all of the device.",
        autocompletion=complete.places,
    ),
]


@reaching
def pause(
    common: Common,
    *,
    place: Place,
    for_: Annotated[str, typer.Option("--for", metavar="TIME", help="30m, 2h; at most 168h.")],
) -> int:
    """Have a device keep what runs, and change nothing, for a while.

    It observes and tells what differs, and repairs, restarts and removes nothing. A manifest that
    comes meanwhile waits (Held, Paused). It ends by itself in its time, also without a network and
    after a reboot; or with harmony resume.

    \b
    harmony pause pi-01/web --for 2h
    harmony pause pi-01 --for 30m
    """
    from harmony_fleet.commands import pause as pausing
    from scores.pause import MAX_SECONDS

    return pausing.pause(common, place, seconds_of(for_, MAX_SECONDS))


@reaching
def resume(common: Common, *, place: Place) -> int:
    """End a pause now. Of a device: its own, and those of its deployments.

    \b
    harmony resume pi-01/web
    harmony resume pi-01
    """
    from harmony_fleet.commands import pause as pausing

    return pausing.resume(common, place)


@reaching
def delete(
    common: Common,
    *,
    deployment: Deployment,
    device: Devices = None,
    select: Select = None,
    wait: Wait = None,
    timeout: Timeout = "60s",
    remains: Annotated[
        bool,
        typer.Option(
            "--remains", help="Also what a device that lost its memory doesn't know as its own."
        ),
    ] = False,
    leave: Leave = None,
    take_over: TakeOver = False,
    follow_generation: Follow = False,
    lineage: LineageOption = None,
) -> int:
    """Take a deployment off devices.

    The devices remove what it owns; then its key goes. The actual state stays, as Removed. A device
    that lost its memory (LedgerLost) isn't done until --remains says that what it had before goes
    as well.

    \b
    harmony delete web --device pi-01
    harmony delete web --select site=home --no-wait
    harmony delete web -d pi-01 --remains
    """
    from harmony_fleet.commands import change
    from harmony_fleet.rollout.remains import Decision

    options = _options(
        wait=wait, seconds=seconds_of(timeout), take_over=take_over, follow=follow_generation
    )
    if remains:
        options = replace(options, decide=Decision(True, leave or ()))
    choice = change.Choice(device or [], select or [])
    return change.delete(common, deployment, choice, options, lineage)
