"""`harmony fleet controller`: runs until it is ended."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from harmony_fleet.commands.common import Common, note
from harmony_fleet.commands.roster import roster_file
from harmony_fleet.controller import Controller
from harmony_fleet.errors import ExitCode
from harmony_fleet.kv import Store


def controller(common: Common, seconds: float) -> ExitCode:
    """Until SIGTERM or an interrupt: exit code 0."""
    file = roster_file(common)
    file.read()
    context = common.context()

    async def main() -> ExitCode:
        async with Store(context) as store:
            work = asyncio.ensure_future(Controller(store, file, note, context.replicas).run(seconds))
            loop = asyncio.get_running_loop()
            with contextlib.suppress(NotImplementedError, RuntimeError):  # no main thread, or no signals there
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, work.cancel)
            note("carrying the roster out; end it with SIGTERM")
            with contextlib.suppress(asyncio.CancelledError):
                await work
        return ExitCode.DONE

    return asyncio.run(main())
