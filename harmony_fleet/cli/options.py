"""Options and endings that all commands share. Imports typer alone, as cli does."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import typer

from harmony_fleet.cli import complete
from harmony_fleet.manifests import duration

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

Server = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="NATS servers, with commas; else $HARMONY_SERVER, context.toml."
    ),
]
Creds = Annotated[
    str | None,
    typer.Option(metavar="PATH", help="NATS .creds file; else $HARMONY_CREDS, context.toml."),
]
TlsCa = Annotated[
    str | None,
    typer.Option("--tls-ca", metavar="PATH", help="CA (PEM); else $HARMONY_TLS_CA, context.toml."),
]
Insecure = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Let credentials go without TLS: who is on the network can read and use them.",
    ),
]
Form = Annotated[
    Literal["table", "json", "yaml"],
    typer.Option("-o", "--output", help="For people or for programs; errors too."),
]
WideForm = Annotated[
    Literal["table", "wide", "json", "yaml"],
    typer.Option(
        "-o", "--output", help="wide has more columns; json and yaml are for programs, errors too."
    ),
]
Deployment = Annotated[
    str,
    typer.Argument(help="The manifest's name on its device.", autocompletion=complete.deployments),
]
Select = Annotated[
    list[str] | None,
    typer.Option("--select", "-l", metavar="LABEL=VALUE", help="At devices with all these labels."),
]
Follow = Annotated[
    bool,
    typer.Option(
        "--follow-generation",
        help="Go on from the generation that a device tells, however far ahead.",
    ),
]
Timeout = Annotated[str, typer.Option(metavar="TIME", help="How long to wait: 60s, 2m, 1m30s.")]

Variables = Annotated[
    list[str] | None,
    typer.Option("--variable", metavar="NAME=VALUE", help="8080 is a number, '\"8080\"' is text."),
]


def seconds_of(text: str, most: float = 86_400) -> float:
    """``60s``, ``2m``, ``1m30s``, ``90``."""
    total = duration.seconds(text)
    if total is None:
        raise typer.BadParameter("write it as 60s, 2m or 1m30s")
    if not 0 < total <= most:
        raise typer.BadParameter(f"must be more than 0 and at most {most / 3600:g}h")
    return total


def common_of(
    ctx: typer.Context,
    server: str | None,
    creds: str | None,
    tls_ca: str | None,
    output: str,
    *,
    insecure: bool = False,
) -> Common:
    """A command's own options before those that stand in front of it."""
    from harmony_fleet.commands.common import Common
    from harmony_fleet.output.render import Output

    before: dict[str, Any] = ctx.obj or {}
    return Common(
        server or before.get("server"),
        creds or before.get("creds"),
        tls_ca or before.get("tls_ca"),
        Output.TABLE if output == "wide" else Output(output),
        insecure or before.get("insecure", False),
        wide=output == "wide",
    )


def guarded(common: Common, work: Callable[[], int]) -> int:
    """Print expected errors without a traceback, and return the exit code."""
    from harmony_fleet.commands.common import note, show_error
    from harmony_fleet.errors import HarmonyError, disk_failed

    try:
        return int(work())
    except HarmonyError as error:
        show_error(error, common.output)
        return int(error.exit_code)
    except KeyboardInterrupt:
        note("stopped")
        return 130
    except BrokenPipeError:
        return reader_gone()
    except OSError as error:
        failed = disk_failed(error)
        if failed is None:
            raise
        show_error(failed, common.output)
        return int(failed.exit_code)


def reaching(command: Callable[..., int]) -> Callable[..., int]:
    """Add the options of the connection and of the output to `command`, for typer.

    `command` gets them as its first argument, a Common. Its errors are printed.
    """
    return _sharing(command, "server", "creds", "tls_ca", "insecure", "output")


def listing(command: Callable[..., int]) -> Callable[..., int]:
    """The same for a list, which has a wide form too."""
    return _sharing(command, "server", "creds", "tls_ca", "insecure", "output", form=WideForm)


def listing_locally(command: Callable[..., int]) -> Callable[..., int]:
    """The same for a list that connects nowhere."""
    return _sharing(command, "output", form=WideForm)


def connecting(command: Callable[..., int]) -> Callable[..., int]:
    """The same without a form: what it writes has one of its own."""
    return _sharing(command, "server", "creds", "tls_ca", "insecure")


def local(command: Callable[..., int]) -> Callable[..., int]:
    """The same for a command that connects nowhere."""
    return _sharing(command, "output")


def _sharing(command: Callable[..., int], *names: str, form: Any = Form) -> Callable[..., int]:
    def run(
        ctx: typer.Context,
        *,
        server: Server = None,
        creds: Creds = None,
        tls_ca: TlsCa = None,
        insecure: Insecure = False,
        output: Form = "table",
        **own: Any,
    ) -> int:
        common = common_of(ctx, server, creds, tls_ca, output, insecure=insecure)
        return guarded(common, lambda: command(common, **own))

    first, *shared, _ = inspect.signature(run).parameters.values()
    _, *own = inspect.signature(command).parameters.values()
    hints = get_type_hints(run, include_extras=True)
    hints |= get_type_hints(
        command, localns={"Common": Any}, include_extras=True
    )  # Common is imported when it runs
    hints["output"] = form
    functools.update_wrapper(run, command)
    chosen = [item for item in shared if item.name in names]
    taken = [item.replace(annotation=hints[item.name]) for item in (first, *own, *chosen)]
    run.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
    run.__annotations__ = hints
    return run


def reader_gone() -> int:
    """`harmony get | head` is no error, and Python shall not tell of it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
