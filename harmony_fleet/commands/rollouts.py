"""`harmony rollout status`, `watch`, `pause`, `resume`, `promote`, `undo`, `history`."""

from __future__ import annotations

from harmony_fleet.client.client import Client
from harmony_fleet.client.rollouts import Verb
from harmony_fleet.commands.common import Common, hint, note, run_client, write
from harmony_fleet.errors import ExitCode, worst
from harmony_fleet.output import render, rollout_progress
from harmony_fleet.output.render import Output
from harmony_fleet.output.rollout_progress import RolloutProgress
from harmony_fleet.rollout.staged.carry import GOING
from harmony_fleet.rollout.staged.record import Rollout


def status(common: Common, deployment: str | None) -> ExitCode:
    """`harmony rollout status`: 1 where one is paused or went back."""

    async def work(client: Client) -> ExitCode:
        if deployment is not None:
            return _show(common, await client.rollouts.get(deployment))
        found = await client.rollouts.all()
        if common.output is not Output.TABLE:
            write([item.wire() for item in found], common.output)
        elif found:
            rollout_progress.rollouts_table(found, render.out())
        else:
            note(
                "no rollouts yet: harmony fleet deployment set NAME --rollout canary=1, then apply"
            )
        return worst(map(rollout_progress.exit_code, found))

    return run_client(common, work)


def watch(common: Common, deployment: str) -> ExitCode:
    """`harmony rollout watch`: carry it on, from anywhere."""

    async def work(client: Client) -> ExitCode:
        return await _carry_on(common, client, deployment)

    try:
        return run_client(common, work)
    except KeyboardInterrupt:
        note(
            f"stopped: what was asked goes on; the rest waits for: harmony rollout watch {deployment}"
        )
        return ExitCode.INTERRUPTED


def change(common: Common, deployment: str, verb: Verb) -> ExitCode:
    """`harmony rollout pause`, `resume`, `promote`, `undo`. What follows from it is carried on."""

    async def work(client: Client) -> ExitCode:
        made = await client.rollouts.change(deployment, verb)
        if made.phase in GOING:
            return await _carry_on(common, client, deployment)
        _show(common, made)
        return ExitCode.DONE

    try:
        return run_client(common, work)
    except KeyboardInterrupt:
        note(f"stopped: it is noted; the rest waits for: harmony rollout watch {deployment}")
        return ExitCode.INTERRUPTED


async def _carry_on(common: Common, client: Client, deployment: str) -> ExitCode:
    with RolloutProgress(render.err(), live=common.output is Output.TABLE) as progress:
        ended = await client.rollouts.carry_on(deployment, progress.show)
    return _show(common, ended)


def history(common: Common, deployment: str) -> ExitCode:
    """`harmony rollout history`: this one and those of before."""

    async def work(client: Client) -> ExitCode:
        found = await client.rollouts.get(deployment)
        if common.output is not Output.TABLE:
            write(found.wire(), common.output)
        else:
            rollout_progress.history_table(found, render.out())
        return ExitCode.DONE

    return run_client(common, work)


def _show(common: Common, rollout: Rollout) -> ExitCode:
    if common.output is not Output.TABLE:
        write(rollout.wire(), common.output)
    else:
        rollout_progress.rollout_view(rollout, render.out())
        hint(rollout_progress.next_step(rollout))
    return rollout_progress.exit_code(rollout)
