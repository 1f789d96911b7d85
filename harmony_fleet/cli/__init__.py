"""The `harmony` command for authors and operators: options, help, exit codes. The work is in
`commands`.

Imports typer alone, so that `harmony --help` is quick. The whole tree of commands stands here:
a group (fleet, upgrade) is a typer of its own, and a module `cli.X` calls `commands.X`.
"""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from harmony_fleet.cli import (
    change,
    dashboard,
    device,
    fleet,
    key,
    objects,
    read,
    rollout,
    rollouts,
    roster,
    roster_items,
    secret,
    upgrade,
    watch,
)
from harmony_fleet.cli import server as server_
from harmony_fleet.cli.options import Creds, Insecure, Server, TlsCa, reader_gone


def _show_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(version("harmony-scores"))
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", callback=_show_version, is_eager=True, help="Print it and end."),
]
app = typer.Typer(
    name="harmony",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _root(
    ctx: typer.Context,
    *,
    server: Server = None,
    creds: Creds = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
    version: Version = False,
) -> None:
    """Write what devices shall be, and see what they are.

    \b
    harmony apply web.py --device pi-01          send a manifest, wait until it is applied
    harmony status                               where every deployment stands
    harmony devices                              who is there, and capable of what
    harmony tree pi-01                           all that one device has
    harmony events -f                            what happens, as it happens
    harmony pause pi-01/web --for 2h             keep it as it runs, and change nothing
    harmony schema --kind Container              what an author may write
    harmony explain CrashLoop                    what a code, a kind or a field means
    harmony validate web.py                      check files, without a server
    harmony import docker-compose.yaml           make a manifest of what others wrote
    harmony fleet apply                          make a whole fleet what its roster says
    harmony rollout status                       how far changes have come, wave by wave
    harmony upgrade start --all …                upgrade packages, in waves
    harmony server init nats --host NAME         make the NATS servers' configuration
    harmony secret set NAME --device pi-01       give a device a value that nobody else reads
    harmony device enroll pi-01                  give a device credentials of its own

    Exit codes: 0 done or converged, 1 not converged, 2 invalid input, 3 somebody else wrote,
    4 NATS or device not reached, 5 refused by a guard, 130 ended by Ctrl-C.
    """
    del version
    ctx.obj = {"server": server, "creds": creds, "tls_ca": tls_ca, "insecure": insecure}


# The whole tree, in the order of the help.
app.command()(change.apply)
app.command()(change.diff)
app.command()(read.get)
app.command()(read.status)
app.command()(watch.tree)
app.command()(watch.events)
app.command()(read.wait)
app.command()(change.adopt)
app.command()(change.pause)
app.command()(change.resume)
app.command()(change.delete)
app.command()(read.logs)
app.command()(read.devices)
app.command()(read.schema)
app.command()(read.explain)
app.command()(read.validate)
app.command("import")(read.import_)
app.add_typer(fleet.app, name="fleet")
app.add_typer(rollouts.app, name="rollout")
app.add_typer(upgrade.app, name="upgrade")
app.add_typer(server_.app, name="server")
app.add_typer(device.app, name="device")
app.add_typer(objects.app, name="object")
app.add_typer(secret.app, name="secret")
fleet.app.command()(roster.init)
fleet.app.command()(roster.show)
fleet.app.command()(roster.adopt)
fleet.app.command()(fleet.status)
fleet.app.command()(fleet.doctor)
fleet.app.command()(fleet.verify)
fleet.app.command()(fleet.remove_key)
fleet.app.command()(rollout.plan)
fleet.app.command()(rollout.apply)
fleet.app.command()(rollout.pull)
fleet.app.command()(rollout.reconcile)
fleet.app.command()(rollout.controller)
fleet.app.command()(dashboard.metrics)
fleet.app.command()(dashboard.dashboard)
roster_items.readers(roster.device, "devices")
roster_items.readers(roster.deployment, "deployments")
roster_items.readers(roster.schedule, "schedules")
roster.device.command("rename")(roster_items.device_rename)
roster.deployment.command("rename")(roster_items.deployment_rename)
fleet.app.add_typer(roster.device, name="device")
fleet.app.add_typer(roster.deployment, name="deployment")
fleet.app.add_typer(roster.schedule, name="schedule")
fleet.app.add_typer(key.key, name="key")


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
    from harmony_fleet.output.render import Output

    show_error(InvalidInput("Usage", error.format_message(), "see harmony --help"), Output(form))


def _asked_for(form: str, words: Sequence[str]) -> bool:
    spelt = {f"-o{form}", f"-o={form}", f"--output={form}"}
    pairs = itertools.pairwise(words)
    return bool(spelt & set(words)) or any(
        flag in ("-o", "--output") and value == form for flag, value in pairs
    )
