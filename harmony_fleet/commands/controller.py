"""`harmony fleet controller`: runs until it is ended."""

from __future__ import annotations

from harmony_fleet.commands.common import Common, note, run_on
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.errors import ExitCode
from harmony_fleet.nats.kv import Store
from harmony_fleet.rollout.controller import Controller


def controller(common: Common, seconds: float) -> ExitCode:
    """Until SIGTERM or an interrupt: exit code 0."""
    file = roster_file(common)
    file.read()

    async def work(store: Store) -> None:
        note("carrying the roster out; end it with SIGTERM")
        await Controller(store, file, note, common.context().replicas).run(seconds)

    return run_on(common, work)
