"""`harmony get`, `status`, `wait`, `logs`, `devices`, `schema`, `explain`, `import`: options and help. The work is in
`commands.read`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import (
    Deployment,
    Select,
    Timeout,
    Variables,
    common_of,
    guarded,
    listing,
    local,
    reaching,
    seconds_of,
)

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

MaybeDeployment = Annotated[
    str | None,
    typer.Argument(
        metavar="DEPLOYMENT", help="Only this one.", autocompletion=complete.deployments
    ),
]
OneDevice = Annotated[
    str,
    typer.Option(
        "--device", "-d", metavar="NAME", help="Of this device.", autocompletion=complete.devices
    ),
]
MaybeDevice = Annotated[
    str | None,
    typer.Option(
        "--device", "-d", metavar="NAME", help="Of this device.", autocompletion=complete.devices
    ),
]


@listing
def get(
    common: Common,
    *,
    deployment: MaybeDeployment = None,
    device: MaybeDevice = None,
    show_values: Annotated[
        bool, typer.Option("--show-values", help="With content of files, values of env.")
    ] = False,
) -> int:
    """Show what is desired.

    \b
    harmony get
    harmony get web --device pi-01 -o yaml
    harmony get web --device pi-01 -o yaml --show-values > web.yaml
    """
    from harmony_fleet.commands import read

    return read.get(common, deployment, device, show_values=show_values)


@listing
def status(
    common: Common,
    *,
    deployment: MaybeDeployment = None,
    device: MaybeDevice = None,
    resources: Annotated[
        bool, typer.Option("--resources", "-r", help="Each resource: phase, reason, drift.")
    ] = False,
    removed: Annotated[bool, typer.Option("--all", "-a", help="Removed deployments too.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="And each change from now on, until Ctrl-C.")
    ] = False,
) -> int:
    """Show the actual state, as the devices report it.

    Exit code 0: all converged, 1: not all. GEN is the generation that the device has, and the
    desired one. A device whose heartbeat is stale counts as not converged, whatever it said last.

    \b
    harmony status
    harmony status web --device pi-01 --resources
    harmony status --watch
    """
    from harmony_fleet.commands import read

    view = read.StatusView(resources, removed, watch)
    return read.status(common, deployment, device, view)


@reaching
def wait(
    common: Common,
    *,
    deployment: Deployment,
    device: OneDevice,
    outcome: Annotated[
        Literal["converged", "removed"], typer.Option("--for", help="What to wait for.")
    ] = "converged",
    timeout: Timeout = "60s",
) -> int:
    """Wait until a device converged, or removed it.

    \b
    harmony wait web --device pi-01 --timeout 2m
    harmony wait web --device pi-01 --for removed
    """
    from harmony_fleet.commands import read
    from scores.keys import DeploymentKey

    seconds, removed = seconds_of(timeout), outcome == "removed"
    return read.wait(common, DeploymentKey(device, deployment), seconds, removed=removed)


@reaching
def logs(
    common: Common,
    *,
    resource: Annotated[
        str,
        typer.Argument(
            help="As Container/web or SystemdUnit/web.service.", autocompletion=complete.logged
        ),
    ],
    device: OneDevice,
    lines: Annotated[
        int, typer.Option("-n", "--lines", min=1, max=1000, help="How many lines from the end.")
    ] = 100,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only of the last 5s, 2m, 3h.")
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", "-t", help="With the time of each line, in your zone.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="And what it writes from now on, until Ctrl-C.")
    ] = False,
) -> int:
    """Show the last lines that a resource wrote. Times are by the device's own clock.

    \b
    harmony logs Container/web --device pi-01 -n 20
    harmony logs SystemdUnit/web.service -d pi-01 --since 10m --timestamps
    harmony logs Container/web -d pi-01 -f
    """
    from harmony_fleet.commands.logs import Wanted
    from harmony_fleet.commands.logs import logs as show

    seconds = seconds_of(since, 86_400 * 365) if since is not None else None
    return show(common, device, Wanted(resource, lines, seconds, timestamps, follow))


@listing
def devices(common: Common, *, select: Select = None) -> int:
    """Show the devices and what they can do.

    Ages are by the server's clock alone. A heartbeat older than 30 s is stale.

    \b
    harmony devices
    harmony devices --select site=home -o json
    harmony devices -o wide
    """
    from harmony_fleet.commands import read

    return read.devices(common, select or [])


@local
def validate(
    common: Common,
    *,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help=".yaml, .json or .py.")],
    variable: Variables = None,
) -> int:
    """Check files of manifests. Needs no NATS.

    Exit code 0: all are valid, 2: not all. A Python file is run. A variable that isn't given is
    taken for whatever fits its field.

    \b
    harmony validate web.yaml base.py
    harmony validate deployments/*.yaml --variable port=8080 -o json
    """
    from harmony_fleet.commands.validate import validate as check
    from harmony_fleet.manifests.variables import parse_variables

    return check(common, files, parse_variables(variable or []))


@local
def explain(
    common: Common,
    *,
    name: Annotated[
        str,
        typer.Argument(
            metavar="CODE|KIND|KIND.FIELD",
            help="As CrashLoop, Container or Container.mounts.",
            autocompletion=complete.explained,
        ),
    ],
) -> int:
    """Say what a code, a kind or a field means. Needs no NATS.

    \b
    harmony explain CrashLoop
    harmony explain Container
    harmony explain Container.mounts.read_only
    """
    from harmony_fleet.commands.explain import explain as show

    return show(common, name)


@local
def import_(
    common: Common,
    *,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="Compose files, quadlets, unit files, lines of docker run; - is standard input.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="The deployment's; else a guess.")
    ] = None,
    there: Annotated[
        str | None,
        typer.Option(
            "--folder",
            metavar="PATH",
            help="Where relative paths begin on the device; /srv/NAME by default.",
        ),
    ] = None,
) -> int:
    """Make a manifest of what others wrote, on standard output. Needs no NATS.

    What can't be taken over stands in comments, with the reason: nothing is dropped silently. A
    compose file's variables come from the shell and from the .env beside it.

    \b
    harmony import docker-compose.yaml > web.yaml
    harmony import *.container *.volume *.network --name zigbee
    echo "podman run -d --name web -p 8080:80 docker.io/library/nginx" | harmony import -
    """
    from harmony_fleet.commands.import_ import import_ as work
    from harmony_fleet.importing.whole import Import

    return work(common, Import(files, name or "", there or ""))


def schema(
    ctx: typer.Context,
    *,
    kind: Annotated[
        str | None,
        typer.Option("--kind", "-k", metavar="KIND", help="Of this kind only, as Container."),
    ] = None,
    of: Annotated[
        str | None,
        typer.Option(
            "--of", metavar="COMMAND", help='Of what this prints with -o json: "fleet status".'
        ),
    ] = None,
    output: Annotated[
        Literal["json", "yaml"] | None, typer.Option("-o", "--output", help="json by default.")
    ] = None,
) -> int:
    """Print the JSON Schema of a manifest or of a command's output.

    Needs no NATS.

    \b
    harmony schema > manifest.schema.json
    harmony schema --kind File -o yaml
    harmony schema --of status
    """
    from harmony_fleet.commands import read

    common = common_of(ctx, None, None, None, output or "table")
    return guarded(common, lambda: read.schema(kind, of, common.output))
