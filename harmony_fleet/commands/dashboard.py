"""`harmony fleet metrics` and `harmony fleet dashboard`."""

from __future__ import annotations

import sys

from harmony_fleet.commands.common import Common, note, run, run_on
from harmony_fleet.dashboard import metrics
from harmony_fleet.dashboard.http import address
from harmony_fleet.dashboard.serve import serve
from harmony_fleet.errors import ExitCode
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe import view
from harmony_fleet.rollout.fleet_apply import server_time


def scrape(common: Common) -> ExitCode:
    """`harmony fleet metrics` without ``--listen``: once, on standard output."""

    async def work(store: Store) -> ExitCode:
        seen = view.FleetView()
        await view.load(store, seen)
        text = metrics.exposition(seen, await server_time(store), connected=store.connected)
        sys.stdout.write(text.decode())
        return ExitCode.DONE

    return run(common, work)


def listen(common: Common, where: str, path: str) -> ExitCode:
    """Answer on `where` until SIGTERM or an interrupt: exit code 0."""
    host, port = address(where)
    return run_on(
        common,
        lambda store: serve(store, host, port, lambda name, number: _say(name, number, path)),
    )


def _say(host: str, port: int, path: str) -> None:
    name = f"[{host}]" if ":" in host else host
    note(f"http://{name}:{port}{path}; Ctrl-C ends it")
