"""`harmony fleet metrics` and `harmony fleet dashboard`."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys

from harmony_fleet import view
from harmony_fleet.board import metrics
from harmony_fleet.board.http import address
from harmony_fleet.board.serve import serve
from harmony_fleet.commands.common import Common, note, run
from harmony_fleet.errors import ExitCode
from harmony_fleet.fleetwork import server_time
from harmony_fleet.kv import Store


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

    async def main() -> ExitCode:
        loop = asyncio.get_running_loop()
        async with Store(common.context()) as store:
            work = asyncio.ensure_future(serve(store, host, port, lambda name, number: _say(name, number, path)))
            with contextlib.suppress(NotImplementedError, RuntimeError):  # no main thread, or no signals there
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, work.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await work
        return ExitCode.DONE

    return asyncio.run(main())


def _say(host: str, port: int, path: str) -> None:
    name = f"[{host}]" if ":" in host else host
    note(f"http://{name}:{port}{path}; end it with SIGTERM")
