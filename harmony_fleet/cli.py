"""The `harmony` command for authors and operators: options, help, exit codes. The work is in `commands`.

Imports typer alone, so that `harmony --help` is quick. A group of commands (fleet, upgrade) is a typer of its own,
added to `app` here.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from harmony_fleet import cli_device, cli_fleet, cli_server, cli_upgrade
from harmony_fleet.cli_options import (
    Creds,
    Form,
    Server,
    TlsCa,
    common_of,
    guarded,
    reader_gone,
    seconds_of,
)

if TYPE_CHECKING:
    from harmony_fleet.apply import Options

app = typer.Typer(
    name="harmony",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


File = Annotated[str, typer.Argument(help="Manifests: .yaml, .json, .py, or - for standard input.")]
Deployment = Annotated[str, typer.Argument(help="The manifest's name on its device.")]
MaybeDeployment = Annotated[str | None, typer.Argument(metavar="DEPLOYMENT", help="Only this one.")]
OneDevice = Annotated[str, typer.Option("--device", "-d", metavar="NAME", help="Of this device.")]
MaybeDevice = Annotated[str | None, typer.Option("--device", "-d", metavar="NAME", help="Of this device.")]
Devices = Annotated[
    list[str] | None, typer.Option("--device", "-d", metavar="NAME", help="At this device; may be repeated.")
]
Select = Annotated[
    list[str] | None, typer.Option("--select", "-l", metavar="LABEL=VALUE", help="At devices with all these labels.")
]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="How long to wait: 60s, 2m, 1m30s.")]
LineageOption = Annotated[
    str | None,
    typer.Option("--lineage", metavar="UUID", help="Write as this authority; else $HARMONY_LINEAGE, the home's."),
]
TakeOver = Annotated[bool, typer.Option("--take-over", help="Own a deployment of another lineage from now on.")]
AllowPrune = Annotated[
    int | None,
    typer.Option("--allow-prune", min=0, max=1000, metavar="N", help="How many resources may be removed at once."),
]
Wait = Annotated[bool | None, typer.Option("--wait/--no-wait", help="Until it is so. On when on a terminal.")]


def _options(
    *, wait: bool | None, seconds: float, take_over: bool, allow_prune: int | None = None, dry_run: bool = False
) -> Options:
    from harmony_fleet.apply import Options

    waits = sys.stdout.isatty() if wait is None else wait
    return Options("", take_over, allow_prune, dry_run, seconds if waits else None)


@app.callback()
def _root(ctx: typer.Context, server: Server = None, creds: Creds = None, tls_ca: TlsCa = None) -> None:
    """Write what devices shall be, and see what they are.

    \b
    harmony apply web.py --device pi-01          send a manifest, wait until it is so
    harmony status                               where every deployment stands
    harmony devices                              who is there, and capable of what
    harmony schema --kind Container              what an author may write
    harmony fleet apply                          make a whole fleet what its roster says
    harmony upgrade start --all …                upgrade packages, in waves
    harmony server init nats --host NAME         make the NATS servers' configuration
    harmony device enroll pi-01                  give a device credentials of its own

    Exit codes: 0 done or converged, 1 not converged, 2 invalid input, 3 somebody else wrote,
    4 NATS or device not reached, 5 refused by a guard.
    """
    ctx.obj = {"server": server, "creds": creds, "tls_ca": tls_ca}


@app.command()
def apply(
    ctx: typer.Context,
    *,
    file: File,
    device: Devices = None,
    select: Select = None,
    wait: Wait = None,
    timeout: Timeout = "60s",
    allow_prune: AllowPrune = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change; write nothing.")] = False,
    take_over: TakeOver = False,
    lineage: LineageOption = None,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
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

    common = common_of(ctx, server, creds, tls_ca, output)
    options = _options(
        wait=wait, seconds=seconds_of(timeout), take_over=take_over, allow_prune=allow_prune, dry_run=dry_run
    )
    choice = change.Choice(device or [], select or [])
    return guarded(common, lambda: change.apply(common, file, choice, options, lineage))


@app.command()
def diff(
    ctx: typer.Context,
    *,
    file: File,
    device: Devices = None,
    select: Select = None,
    allow_prune: AllowPrune = None,
    take_over: TakeOver = False,
    lineage: LineageOption = None,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Show what apply would change. Exit code 0: nothing, 1: something.

    Names, digests and plain settings are shown; the content of files and values of variables never are.

    \b
    harmony diff web.py --device pi-01
    """
    from harmony_fleet.commands import change

    common = common_of(ctx, server, creds, tls_ca, output)
    options = _options(wait=False, seconds=1, take_over=take_over, allow_prune=allow_prune, dry_run=True)
    choice = change.Choice(device or [], select or [])
    return guarded(common, lambda: change.diff(common, file, choice, options, lineage))


@app.command()
def get(
    ctx: typer.Context,
    *,
    deployment: MaybeDeployment = None,
    device: MaybeDevice = None,
    show_values: Annotated[bool, typer.Option("--show-values", help="With content of files, values of env.")] = False,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Show what is desired.

    \b
    harmony get
    harmony get web --device pi-01 -o yaml
    harmony get web --device pi-01 -o yaml --show-values > web.yaml
    """
    from harmony_fleet.commands import look

    common = common_of(ctx, server, creds, tls_ca, output)
    return guarded(common, lambda: look.get(common, deployment, device, show_values=show_values))


@app.command()
def status(
    ctx: typer.Context,
    *,
    deployment: MaybeDeployment = None,
    device: MaybeDevice = None,
    resources: Annotated[bool, typer.Option("--resources", "-r", help="Each resource: phase, reason, drift.")] = False,
    removed: Annotated[bool, typer.Option("--all", "-a", help="Removed deployments too.")] = False,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Show what is so, in the devices' own word.

    Exit code 0: all converged, 1: not all. GEN is the generation that the device has, and the
    desired one. A device whose heartbeat is stale counts as not converged, whatever it said last.

    \b
    harmony status
    harmony status web --device pi-01 --resources
    """
    from harmony_fleet.commands import look

    common = common_of(ctx, server, creds, tls_ca, output)
    view = look.StatusView(resources, removed)
    return guarded(common, lambda: look.status(common, deployment, device, view))


@app.command()
def wait(
    ctx: typer.Context,
    *,
    deployment: Deployment,
    device: OneDevice,
    outcome: Annotated[Literal["converged", "removed"], typer.Option("--for", help="What to wait for.")] = "converged",
    timeout: Timeout = "60s",
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Wait until a device converged, or removed it.

    \b
    harmony wait web --device pi-01 --timeout 2m
    harmony wait web --device pi-01 --for removed
    """
    from harmony_fleet.commands import ask
    from scores.keys import DeploymentKey

    common = common_of(ctx, server, creds, tls_ca, output)
    seconds, removed = seconds_of(timeout), outcome == "removed"
    return guarded(common, lambda: ask.wait(common, DeploymentKey(device, deployment), seconds, removed=removed))


@app.command()
def delete(
    ctx: typer.Context,
    *,
    deployment: Deployment,
    device: Devices = None,
    select: Select = None,
    wait: Wait = None,
    timeout: Timeout = "60s",
    take_over: TakeOver = False,
    lineage: LineageOption = None,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Take a deployment off devices.

    The devices remove what it owns; then its key goes. The actual state stays, as Removed.

    \b
    harmony delete web --device pi-01
    harmony delete web --select site=home --no-wait
    """
    from harmony_fleet.commands import change

    common = common_of(ctx, server, creds, tls_ca, output)
    options = _options(wait=wait, seconds=seconds_of(timeout), take_over=take_over)
    choice = change.Choice(device or [], select or [])
    return guarded(common, lambda: change.delete(common, deployment, choice, options, lineage))


@app.command()
def logs(
    ctx: typer.Context,
    *,
    resource: Annotated[str, typer.Argument(help="As Container/web or SystemdUnit/web.service.")],
    device: OneDevice,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, max=1000, help="The last so many.")] = 100,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Show the last lines that a resource wrote.

    \b
    harmony logs Container/web --device pi-01 -n 20
    """
    from harmony_fleet.commands import ask

    common = common_of(ctx, server, creds, tls_ca, output)
    return guarded(common, lambda: ask.logs(common, resource, device, lines))


@app.command()
def devices(
    ctx: typer.Context,
    *,
    select: Select = None,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    output: Form = "table",
) -> int:
    """Show the devices and what they can do.

    Ages are by the server's clock alone. A heartbeat older than 30 s is stale.

    \b
    harmony devices
    harmony devices --select site=home -o json
    """
    from harmony_fleet.commands import look

    common = common_of(ctx, server, creds, tls_ca, output)
    return guarded(common, lambda: look.devices(common, select or []))


@app.command()
def schema(
    ctx: typer.Context,
    *,
    kind: Annotated[
        str | None, typer.Option("--kind", "-k", metavar="KIND", help="Of this kind only, as Container.")
    ] = None,
    output: Annotated[Literal["json", "yaml"] | None, typer.Option("-o", "--output", help="json by default.")] = None,
) -> int:
    """Print the JSON Schema of a manifest. Needs no NATS.

    \b
    harmony schema > manifest.schema.json
    harmony schema --kind File -o yaml
    """
    from harmony_fleet.commands import look

    common = common_of(ctx, None, None, None, output or "table")
    return guarded(common, lambda: look.schema(kind, common.output))


app.add_typer(cli_fleet.app, name="fleet")
app.add_typer(cli_upgrade.app, name="upgrade")
app.add_typer(cli_server.app, name="server")
app.add_typer(cli_device.app, name="device")


def main(args: Sequence[str] | None = None) -> int:
    """The console script: every end is an exit code of the table."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        code = app(words, prog_name="harmony", standalone_mode=False)
    except Exception as error:
        if not hasattr(error, "show"):  # typer's own usage errors can show themselves
            raise
        _show_usage_error(error, words)
        code = 2
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        reader_gone()
    return code if isinstance(code, int) else 0


def _show_usage_error(error: Any, words: Sequence[str]) -> None:
    form = next((form for form in ("json", "yaml") if _asked_for(form, words)), None)
    if form is None:
        error.show()
        return
    from harmony_fleet.commands.common import show_error
    from harmony_fleet.errors import InvalidInput
    from harmony_fleet.render import Output

    show_error(InvalidInput("Usage", error.format_message(), "see harmony --help"), Output(form))


def _asked_for(form: str, words: Sequence[str]) -> bool:
    spelt = {f"-o{form}", f"-o={form}", f"--output={form}"}
    pairs = itertools.pairwise(words)
    return bool(spelt & set(words)) or any(flag in ("-o", "--output") and value == form for flag, value in pairs)
