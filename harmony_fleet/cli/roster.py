"""`harmony fleet init|device|deployment|schedule`: options and help. The work is in
`commands.roster`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import Variables, local, reaching

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

device = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Devices of the roster.")
deployment = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Deployments of the roster."
)
schedule = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Recurring upgrade runs of the roster."
)

Generation = Annotated[
    int | None,
    typer.Option(
        "--generation",
        "-g",
        min=1,
        metavar="N",
        help="Refuse the change if the roster isn't at this one. Left out: the current one.",
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="One or several.")]
Name = Annotated[str, typer.Argument(help="Its name.")]
Class = Annotated[str, typer.Option("--class", metavar="CLASS", help="Their class.")]
MaybeClass = Annotated[
    str | None, typer.Option("--class", metavar="CLASS", help="Devices of this class.")
]
AnyClass = Annotated[bool, typer.Option("--any-class", help="Devices of every class.")]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="LABEL=VALUE", help="May be repeated.")
]
NoLabels = Annotated[
    list[str] | None, typer.Option("--no-label", metavar="LABEL", help="Take this label away.")
]
NoVariables = Annotated[
    list[str] | None, typer.Option("--no-variable", metavar="NAME", help="Take it away.")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--override",
        metavar="DEPLOYMENT/KIND/NAME.FIELD=VALUE",
        help="Another value here alone. In JSON, or text; null takes the field away.",
    ),
]
NoOverrides = Annotated[
    list[str] | None,
    typer.Option(
        "--no-override",
        metavar="DEPLOYMENT[/KIND/NAME[.FIELD]]",
        help="As everywhere again.",
    ),
]
State = Annotated[
    Literal["running", "stopped"] | None,
    typer.Option("--desired-state", help="stopped keeps files, and stops units and containers."),
]
Enabled = Annotated[
    bool | None, typer.Option("--enable/--disable", help="Disabled wins over running.")
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", "-l", metavar="LABEL=VALUE", help="Devices with all these labels."),
]
NoSelect = Annotated[
    list[str] | None, typer.Option("--no-select", metavar="LABEL", help="Ask no more for this one.")
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(
        "--exclude",
        metavar="NAME",
        help="Not this device, though it is meant.",
        autocompletion=complete.devices,
    ),
]
NoExclude = Annotated[
    list[str] | None,
    typer.Option(
        "--no-exclude",
        metavar="NAME",
        help="Exclude it no more.",
        autocompletion=complete.devices,
    ),
]
File = Annotated[
    str, typer.Option("--file", "-f", metavar="PATH", help="Scores in YAML, JSON or Python.")
]
MaybeFile = Annotated[
    str | None, typer.Option("--file", "-f", metavar="PATH", help="Scores in YAML, JSON or Python.")
]
StartWithin = Annotated[
    str | None,
    typer.Option("--start-within", metavar="TIME", help="A run that is later is left out: 15m."),
]
Rollout = Annotated[
    list[str] | None,
    typer.Option(
        "--rollout",
        metavar="FIELD=VALUE",
        help="In waves: canary=1, max_unavailable=10%, on_failure=rollback.",
    ),
]
NoRollout = Annotated[
    bool, typer.Option("--no-rollout", help="At all devices at once from now on.")
]
Inline = Annotated[bool, typer.Option("--inline", help="Copy the Scores into the roster.")]


@device.command("add")
@local
def device_add(
    common: Common,
    *,
    names: Names,
    device_class: Class,
    generation: Generation = None,
    label: Labels = None,
    variable: Variables = None,
    enabled: Enabled = None,
    desired_state: State = None,
) -> int:
    """Take devices into the fleet.

    \b
    harmony fleet device add pi-01 pi-02 --class web --label site=home --generation 1
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.manifests.variables import pairs, parse_variables

    item = {
        "class": device_class,
        "labels": pairs("label", label or []) or None,
        "enabled": enabled,
        "desired_state": desired_state,
        "variables": parse_variables(variable or []) or None,
    }
    given = {name: value for name, value in item.items() if value is not None}
    return roster.add_items(common, "devices", names, given, generation)


@device.command("set")
@local
def device_set(
    common: Common,
    *,
    names: Names,
    generation: Generation = None,
    device_class: MaybeClass = None,
    label: Labels = None,
    no_label: NoLabels = None,
    variable: Variables = None,
    no_variable: NoVariables = None,
    override: Overrides = None,
    no_override: NoOverrides = None,
    enabled: Enabled = None,
    desired_state: State = None,
) -> int:
    """Change devices of the fleet.

    \b
    harmony fleet device set pi-01 --desired-state stopped --generation 4
    harmony fleet device set pi-01 pi-02 --disable --generation 5
    harmony fleet device set pi-01 --override web/Container/web.memory=128Mi
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.commands import roster_values as values_of
    from harmony_fleet.manifests.variables import pairs, parse_variables

    values = {
        **values_of.flat(
            {"class": device_class, "enabled": enabled, "desired_state": desired_state}
        ),
        **values_of.nested("labels", pairs("label", label or [])),
        **values_of.unset("labels", no_label or []),
        **values_of.nested("variables", parse_variables(variable or [])),
        **values_of.unset("variables", no_variable or []),
        **values_of.overriding(common, override or [], no_override or []),
    }
    return roster.set_items(common, "devices", names, values, generation)


@deployment.command("add")
@local
def deployment_add(
    common: Common,
    *,
    name: Name,
    file: File,
    generation: Generation = None,
    inline: Inline = False,
    device_class: MaybeClass = None,
    select: Select = None,
    exclude: Exclude = None,
    rollout: Rollout = None,
) -> int:
    """Say what is to be on which devices.

    On those of a class, with labels, or on all.

    The roster keeps the file's name and the digest of what it says; when it says something else,
    set it again.

    \b
    harmony fleet deployment add web --file web.py --class web --generation 2
    harmony fleet deployment add base --file base.yaml --inline --select site=home --generation 3
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.commands import roster_values as values_of

    chosen = values_of.selector(device_class, select or [])
    if exclude:
        chosen["exclude"] = values_of.members(common, exclude)
    item = {
        **({"select": chosen} if chosen else {}),
        **values_of.source(common, file, inline=inline),
        **({"rollout": values_of.policy(rollout)} if rollout else {}),
    }
    return roster.add_items(common, "deployments", [name], item, generation)


@deployment.command("set")
@local
def deployment_set(
    common: Common,
    *,
    name: Name,
    generation: Generation = None,
    file: MaybeFile = None,
    inline: Inline = False,
    device_class: MaybeClass = None,
    any_class: AnyClass = False,
    select: Select = None,
    no_select: NoSelect = None,
    exclude: Exclude = None,
    no_exclude: NoExclude = None,
    rollout: Rollout = None,
    no_rollout: NoRollout = False,
) -> int:
    """Change what is to be on devices, or on which.

    \b
    harmony fleet deployment set web --file web.py --generation 3
    harmony fleet deployment set web --any-class --select site=home --generation 4
    harmony fleet deployment set web --exclude pi-03
    harmony fleet deployment set web --rollout canary=1 --rollout on_failure=rollback
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.commands import roster_values as values_of
    from harmony_fleet.roster.edit import UNSET

    values = values_of.selection(device_class, any_class, select or [], no_select or [])
    values |= values_of.excluding(common, exclude or [], no_exclude or [])
    values |= values_of.nested("rollout", values_of.policy(rollout or []))
    if no_rollout:
        values["rollout",] = UNSET
    if file is not None:
        gone: roster.Values = {(key,): UNSET for key in ("scores", "file", "digest")}
        values |= gone | values_of.flat(values_of.source(common, file, inline=inline))
    return roster.set_items(common, "deployments", [name], values, generation)


@schedule.command("add")
@local
def schedule_add(
    common: Common,
    *,
    name: Name,
    cron: Annotated[
        str, typer.Option("--cron", metavar="EXPRESSION", help="In UTC, as '0 3 * * 0'.")
    ],
    generation: Generation = None,
    deadline: Annotated[
        str, typer.Option("--deadline", metavar="TIME", help="Of each run: 2h, 90m.")
    ] = "2h",
    max_unavailable: Annotated[
        int, typer.Option("--max-unavailable", min=1, help="Devices at once.")
    ] = 1,
    canary: Annotated[
        int | None, typer.Option("--canary", min=1, help="This many alone in a first wave.")
    ] = None,
    start_within: StartWithin = None,
    device_class: MaybeClass = None,
    select: Select = None,
    exclude: Exclude = None,
) -> int:
    """Upgrade devices again and again. `harmony fleet controller` carries it out.

    \b
    harmony fleet schedule add nightly --cron '0 3 * * *' --select site=home --max-unavailable 2
    --generation 5
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.commands import roster_values as values_of

    chosen = values_of.selector(device_class, select or [])
    if exclude:
        chosen["exclude"] = values_of.members(common, exclude)
    bounds = {"cron": cron, "deadline": deadline, "max_unavailable": max_unavailable}
    item = {
        **bounds,
        **({"canary": canary} if canary else {}),
        **({"start_within": start_within} if start_within else {}),
        **({"select": chosen} if chosen else {}),
    }
    return roster.add_items(common, "schedules", [name], item, generation)


@schedule.command("set")
@local
def schedule_set(
    common: Common,
    *,
    name: Name,
    generation: Generation = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPRESSION", help="In UTC.")
    ] = None,
    deadline: Annotated[
        str | None, typer.Option("--deadline", metavar="TIME", help="Of each run.")
    ] = None,
    max_unavailable: Annotated[
        int | None, typer.Option("--max-unavailable", min=1, help="Devices at once.")
    ] = None,
    canary: Annotated[
        int | None, typer.Option("--canary", min=0, help="This many first; 0 for no canary.")
    ] = None,
    start_within: StartWithin = None,
    device_class: MaybeClass = None,
    any_class: AnyClass = False,
    select: Select = None,
    no_select: NoSelect = None,
    exclude: Exclude = None,
    no_exclude: NoExclude = None,
    enabled: Enabled = None,
) -> int:
    """Change a schedule.

    \b
    harmony fleet schedule set nightly --disable --generation 6
    """
    from harmony_fleet.commands import roster
    from harmony_fleet.commands import roster_values as values_of
    from harmony_fleet.roster.edit import UNSET

    values = values_of.selection(device_class, any_class, select or [], no_select or [])
    values |= values_of.excluding(common, exclude or [], no_exclude or [])
    bounds = {
        "cron": cron,
        "deadline": deadline,
        "max_unavailable": max_unavailable,
        "start_within": start_within,
        "enabled": enabled,
    }
    values |= values_of.flat(bounds)
    if canary is not None:
        values["canary",] = canary or UNSET
    return roster.set_items(common, "schedules", [name], values, generation)


def _remover(
    group: typer.Typer, section: Literal["devices", "deployments", "schedules"], what: str
) -> None:
    def remove(common: Common, *, names: Names, generation: Generation = None) -> int:
        from harmony_fleet.commands import roster

        return roster.remove_items(common, section, names, generation)

    word = section.removesuffix("s")
    remove.__doc__ = f"{what}\n\n    \b\n    harmony fleet {word} remove NAME --generation 7\n    "
    group.command("remove")(local(remove))


_remover(
    device,
    "devices",
    "Take devices out; apply then takes off what is theirs.",
)
_remover(deployment, "deployments", "Take deployments out; apply then takes them off the devices.")
_remover(schedule, "schedules", "Take schedules out.")


@local
def init(common: Common) -> int:
    """Make an empty roster.

    It is at generation 1, and writes by the home's lineage, as harmony apply does. What was applied
    by hand stays as it is until harmony fleet adopt, or a deployment of that name for that device,
    takes it in.

    \b
    harmony fleet init
    """
    from harmony_fleet.commands import roster

    return roster.init(common)


@reaching
def adopt(
    common: Common,
    *,
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="DEVICE/DEPLOYMENT…",
            help="Applied by hand.",
            autocompletion=complete.places,
        ),
    ],
    generation: Generation = None,
    device_class: MaybeClass = None,
    select: Select = None,
) -> int:
    """Take what was applied by hand into the roster, as it stands.

    Its Scores go into a file beside the roster. It selects just those devices: by their class or
    labels, or as --class and --select say. Nothing is written to the devices; the next apply leaves
    the generation as it is.

    \b
    harmony fleet adopt pi-01/web
    harmony fleet adopt pi-01/web pi-02/web --select site=home
    """
    from harmony_fleet.commands import adopt as work

    return work.adopt(common, places, work.Choice(device_class, select or [], generation))


@local
def show(common: Common) -> int:
    """Show what the roster says, and its generation. Needs no NATS.

    \b
    harmony fleet show
    """
    from harmony_fleet.commands import roster

    return roster.show(common)
