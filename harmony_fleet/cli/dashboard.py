"""`harmony fleet metrics` and `dashboard`: options and help. The work is in `commands.dashboard`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli.options import connecting

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

Listen = Annotated[
    str, typer.Option(metavar="ADDRESS:PORT", help="Where, on loopback; port 0 takes a free one.")
]
MaybeListen = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS:PORT", help="Answer there, on loopback, instead of printing once."
    ),
]


@connecting
def metrics(common: Common, *, listen: MaybeListen = None) -> int:
    """Print the fleet's metrics as Prometheus reads them.

    With --listen, answer /metrics until ended.

    \b
    harmony fleet metrics
    harmony fleet metrics --listen 127.0.0.1:9464
    """
    from harmony_fleet.commands import dashboard as board

    if listen is None:
        return board.scrape(common)
    return board.listen(common, listen, "/metrics")


@connecting
def dashboard(common: Common, *, listen: Listen = "127.0.0.1:8080") -> int:
    """Show the fleet in a browser, on loopback, until ended. It shows codes and names only, and
    changes nothing.

    \b
    harmony fleet dashboard
    harmony fleet dashboard --listen 127.0.0.1:9000
    """
    from harmony_fleet.commands import dashboard as board

    return board.listen(common, listen, "/")
