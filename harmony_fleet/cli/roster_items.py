"""`harmony fleet device|deployment|schedule list|show`, and `rename`: options and help. The work is in
`commands.roster` and `commands.rename`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import listing_locally, local, reaching
from harmony_fleet.cli.roster import Generation, Name

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

NewName = Annotated[str, typer.Argument(metavar="NEW", help="Its new name.")]
DeviceName = Annotated[
    str, typer.Argument(metavar="NAME", help="Of the device.", autocompletion=complete.devices)
]
DeploymentName = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Of the deployment.", autocompletion=complete.deployments),
]


def readers(group: typer.Typer, section: Literal["devices", "deployments", "schedules"]) -> None:
    """Add `list` and `show` to a group."""
    word = section.removesuffix("s")

    def list_(common: Common) -> int:
        from harmony_fleet.commands import roster

        return roster.list_items(common, section)

    def show(
        common: Common,
        *,
        name: Name,
    ) -> int:
        from harmony_fleet.commands import roster

        return roster.show_item(common, section, name)

    list_.__doc__ = f"""Show the roster's {section}. Needs no NATS.

    \b
    harmony fleet {word} list
    """
    show.__doc__ = f"""Show one {word} of the roster, as YAML, without values. Needs no NATS.

    \b
    harmony fleet {word} show NAME
    """
    group.command("list")(listing_locally(list_))
    group.command("show")(local(show))


@reaching
def device_rename(
    common: Common, *, name: DeviceName, new: NewName, generation: Generation = None
) -> int:
    """Give a device of the roster another name.

    Refused where it was heard of under this one.

    The name is the id in a device's credentials and in its agent's configuration. So one that is in
    use is refused with 5, and the hint says how the device gets another.

    \b
    harmony fleet device rename pi-1 pi-01
    """
    from harmony_fleet.commands import rename

    return rename.rename_device(common, name, new, generation)


@reaching
def deployment_rename(
    common: Common, *, name: DeploymentName, new: NewName, generation: Generation = None
) -> int:
    """Give a deployment another name, if no device has it.

    A device owns what it runs by the deployment's name. Under another name it would be taken off and
    made anew, so it is refused with 5 while a device has it.

    \b
    harmony fleet deployment rename wbe web
    """
    from harmony_fleet.commands import rename

    return rename.rename_deployment(common, name, new, generation)
