"""`harmony rollout …`: options and help. The work is in `commands.rollouts`."""

# ruff: noqa: PLC0415 - what a command needs is imported when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from harmony_fleet.cli import complete
from harmony_fleet.cli.options import reaching

if TYPE_CHECKING:
    from harmony_fleet.commands.common import Common

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="DEPLOYMENT", autocompletion=complete.deployments)]
MaybeName = Annotated[
    str | None, typer.Argument(metavar="[DEPLOYMENT]", autocompletion=complete.deployments)
]


@app.callback()
def _rollout() -> None:
    """See and steer how changed deployments reach their devices.

    A deployment of the roster with a rollout reaches a canary first, then wave after wave.

    \b
    harmony fleet deployment set web --rollout canary=1 --rollout on_failure=rollback
    harmony fleet apply
    harmony rollout status web
    """


@app.command()
@reaching
def status(common: Common, *, deployment: MaybeName = None) -> int:
    """Show the waves of a deployment, what failed first, and at how many devices.

    Exit code 1 where a rollout is paused or went back.

    \b
    harmony rollout status
    harmony rollout status web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.status(common, deployment)


@app.command()
@reaching
def watch(common: Common, *, deployment: Name) -> int:
    """Carry a rollout on until it ends or stops. Several may: no device gets a generation twice.

    \b
    harmony rollout watch web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.watch(common, deployment)


@app.command()
@reaching
def pause(common: Common, *, deployment: Name) -> int:
    """Ask no further device. Those that were asked go on.

    \b
    harmony rollout pause web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.change(common, deployment, "pause")


@app.command()
@reaching
def resume(common: Common, *, deployment: Name) -> int:
    """Go on after a pause, a failure or a way back: what failed is tried again.

    \b
    harmony rollout resume web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.change(common, deployment, "resume")


@app.command()
@reaching
def promote(common: Common, *, deployment: Name) -> int:
    """Ask all that wait, at once: without waves, window or budget.

    \b
    harmony rollout promote web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.change(common, deployment, "promote")


@app.command()
@reaching
def undo(common: Common, *, deployment: Name) -> int:
    """Have each device go back to what it had before this rollout.

    \b
    harmony rollout undo web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.change(common, deployment, "undo")


@app.command()
@reaching
def history(common: Common, *, deployment: Name) -> int:
    """Show this rollout of a deployment and the ten before it.

    \b
    harmony rollout history web
    """
    from harmony_fleet.commands import rollouts

    return rollouts.history(common, deployment)
