"""`harmony device …`: options and help. The work is in `commands.device`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import connecting, local, reaching, seconds_of

if TYPE_CHECKING:
    from harmony_fleet.authority.enrolled import EnrollOptions
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Device = Annotated[
    str,
    typer.Argument(metavar="DEVICE", help="As pi-01.", autocompletion=complete.devices),
]
BundleFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where the bundle goes; else DEVICE.bundle."
    ),
]
Label = Annotated[
    list[str] | None, typer.Option("--label", metavar="NAME=VALUE", help="May be repeated.")
]
NoLabel = Annotated[
    list[str] | None, typer.Option("--no-label", metavar="NAME", help="Take this label away.")
]
Root = Annotated[
    list[str] | None,
    typer.Option(
        "--root", metavar="PATH", help="Files may be below it; else /srv. May be repeated."
    ),
]
Unit = Annotated[
    list[str] | None,
    typer.Option("--unit", metavar="GLOB", help="Units that it may touch; else all."),
]
Profile = Annotated[
    Literal["user", "system"] | None,
    typer.Option(help="user, or system, which is near to root; see docs/threat-model.md."),
]
Reach = Annotated[
    list[str] | None,
    typer.Option(
        "--reach", metavar="URL", help="Servers as the device reaches them, if otherwise."
    ),
]


@app.callback()
def _device() -> None:
    """Give devices credentials of their own, and take them back.

    \b
    harmony device enroll pi-01 --label site=home
    harmony device setup pi@raspberrypi.local pi-01.bundle --package harmony-agent.deb
    harmony device show pi-01
    harmony device rotate pi-01
    harmony device revoke pi-01
    harmony device forget pi-01
    """


def _asked(
    reach: list[str] | None,
    label: list[str] | None,
    root: list[str] | None,
    unit: list[str] | None,
    profile: str | None,
    *,
    no_label: list[str] | None = None,
) -> EnrollOptions:
    from harmony_fleet.authority.enrolled import EnrollOptions

    labels = dict(one.partition("=")[::2] for one in label or ())
    if any("=" not in one for one in label or ()):
        raise typer.BadParameter("write it as NAME=VALUE")
    return EnrollOptions(
        tuple(reach or ()), labels or None, root, unit, None, profile, tuple(no_label or ())
    )


@app.command()
@connecting
def enroll(
    common: Common,
    *,
    device: Device,
    bundle: BundleFile = None,
    label: Label = None,
    root: Root = None,
    unit: Unit = None,
    profile: Profile = None,
    reach: Reach = None,
) -> int:
    """Make a device's credentials, and one bundle by which it joins.

    \b
    harmony device enroll pi-01
    harmony device enroll pi-01 --label site=home --root /srv --root /opt/app -o /tmp/pi-01.bundle
    """
    from harmony_fleet.commands import device as work

    asked, path = _asked(reach, label, root, unit, profile), bundle or Path(f"{device}.bundle")
    return work.enroll_device(common, device, asked, path)


@app.command()
@connecting
def rotate(
    common: Common,
    *,
    device: Device,
    bundle: BundleFile = None,
    at_once: Annotated[
        bool, typer.Option("--at-once", help="Refuse what it has now: it is cut off.")
    ] = False,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait", metavar="TIME", help="Until it uses the new ones; then refuse the old."
        ),
    ] = None,
    label: Label = None,
    no_label: NoLabel = None,
    root: Root = None,
    unit: Unit = None,
    profile: Profile = None,
    reach: Reach = None,
) -> int:
    """Make new credentials for a device, in a new bundle.

    Without --at-once or --wait both hold until harmony device finish. What it was enrolled with
    (harmony device show) is in the new bundle as well. A label is set beside the others; --root,
    --unit and --reach take the place of all that were.

    \b
    harmony device rotate pi-01 --wait 10m
    harmony device rotate pi-01 --at-once
    harmony device rotate pi-01 --label site=away --no-label rack
    """
    from harmony_fleet.commands import device as work

    if at_once and wait:
        raise typer.BadParameter("--at-once and --wait exclude one another")
    old = work.OldCredentials(at_once, seconds_of(wait) if wait else None)
    asked = _asked(reach, label, root, unit, profile, no_label=no_label)
    path = bundle or Path(f"{device}.bundle")
    return work.rotate(common, device, asked, path, old)


@app.command()
@reaching
def finish(
    common: Common,
    *,
    device: Device,
    wait: Annotated[
        str | None, typer.Option("--wait", metavar="TIME", help="For it to use the new ones.")
    ] = None,
) -> int:
    """End a rotation: refuse the credentials before.

    Refused while the device isn't connected with the new ones.

    \b
    harmony device finish pi-01
    """
    from harmony_fleet.commands import device as work

    return work.finish(common, device, seconds_of(wait) if wait else 0.0)


@app.command()
@reaching
def revoke(common: Common, *, device: Device) -> int:
    """Refuse a device's credentials from now on.

    Its connection is cut. What it runs goes on.

    \b
    harmony device revoke pi-01
    """
    from harmony_fleet.commands import device as work

    return work.revoke(common, device)


@app.command()
@reaching
def forget(
    common: Common,
    *,
    device: Device,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Although it is heard, or a run waits for it; tells what is left."
        ),
    ] = False,
) -> int:
    """Withdraw a device's credentials, and remove its keys.

    They go from all buckets. Refused while it is heard, and while it stands in the roster. It is
    shown no more. Its credentials stay withdrawn, whichever copy of the home pushes. May be
    repeated.

    \b
    harmony device forget pi-01
    """
    from harmony_fleet.commands import forget as work

    return work.forget(common, device, force=force)


@app.command()
@local
def show(common: Common, *, device: Device) -> int:
    """Show what a device was enrolled with. Needs no NATS.

    \b
    harmony device show pi-01
    """
    from harmony_fleet.commands import device as work

    return work.show(common, device)


@app.command("list")
@local
def list_(common: Common) -> int:
    """Show the devices that have credentials. Needs no NATS.

    \b
    harmony device list
    """
    from harmony_fleet.commands import device as work

    return work.list_devices(common)


@app.command()
@connecting
def setup(
    common: Common,
    *,
    login: Annotated[
        str, typer.Argument(metavar="USER@HOST", help="Root, or a user with sudo and no password.")
    ],
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="As enroll or rotate wrote it.")],
    package: Annotated[
        list[Path] | None,
        typer.Option("--package", metavar="FILE", help="A .deb to install; may be repeated."),
    ] = None,
    packages: Annotated[
        Path, typer.Option("--packages", metavar="DIR", help="Else the right ones of this folder.")
    ] = Path("dist"),
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Of ssh.")] = None,
    identity: Annotated[
        Path | None, typer.Option("--identity", metavar="FILE", help="The key for ssh.")
    ] = None,
    timeout: Annotated[str, typer.Option(metavar="TIME", help="For the first heartbeat.")] = "2m",
) -> int:
    """Install the packages over ssh, join, wait for the first heartbeat. May be repeated.

    ssh must reach it by a key; its host key must be known.

    \b
    harmony device setup pi@raspberrypi.local pi-01.bundle
    """
    from harmony_fleet.authority.device_setup import Setup
    from harmony_fleet.authority.ssh import Remote
    from harmony_fleet.commands import device as work

    remote, debs = Remote.of(login, port, identity), [one.absolute() for one in package or ()]
    wanted = Setup(remote, bundle.absolute(), debs, packages, seconds_of(timeout))
    return work.setup(common, wanted)
