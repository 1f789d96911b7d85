"""Parts of all commands: options, one connection, errors and results in the requested form."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from harmony_fleet.client.client import Client
from harmony_fleet.context import Context, home_of, load_context
from harmony_fleet.errors import ExitCode, HarmonyError
from harmony_fleet.nats import connection
from harmony_fleet.nats.kv import Store
from harmony_fleet.output import render
from harmony_fleet.output.render import Output
from harmony_fleet.storage import names

_INSIST_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command has."""

    server: str | None = None
    creds: str | None = None
    tls_ca: str | None = None
    output: Output = Output.TABLE
    insecure: bool = False
    wide: bool = False
    """A list has more columns than fit beside one another in a narrow terminal."""

    def context(self) -> Context:
        """Server and credentials of the connection."""
        return load_context(
            server=self.server, creds=self.creds, tls_ca=self.tls_ca, insecure=self.insecure
        )

    def home(self) -> Path:
        """Folder of the context, the roster and the authority, present or future."""
        return home_of(os.environ)


def run_client(
    common: Common, work: Callable[[Client], Awaitable[ExitCode]], seconds: float | None = None
) -> ExitCode:
    """Connect, for at most `seconds`, and work."""
    most = connection.CONNECT_SECONDS

    async def main() -> ExitCode:
        _end_when_interrupted(asyncio.current_task())
        async with Client(common.context(), min(most, seconds) if seconds else most) as client:
            return await work(client)

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def run(
    common: Common, work: Callable[[Store], Awaitable[ExitCode]], seconds: float | None = None
) -> ExitCode:
    """The same for work on the buckets themselves."""
    return run_client(common, lambda client: work(client.store), seconds)


def run_on(common: Common, work: Callable[[Store], Coroutine[Any, Any, None]]) -> ExitCode:
    """Connect, and work until SIGTERM or an interrupt: exit code 0."""

    async def main() -> ExitCode:
        async with Store(common.context()) as store:
            task = asyncio.ensure_future(work(store))
            loop = asyncio.get_running_loop()
            with contextlib.suppress(
                NotImplementedError, RuntimeError
            ):  # no main thread, or no signals there
                for number in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(number, task.cancel)
            with contextlib.suppress(asyncio.CancelledError):
                await task
        return ExitCode.DONE

    return asyncio.run(main())


def _end_when_interrupted(task: asyncio.Task[Any] | None) -> None:
    """Cancel the task on SIGINT, and again until it ends; a second SIGINT ends it on the spot.

    asyncio's own handler cancels once, and `asyncio.wait_for` of Python 3.11, in which nats-py
    waits, loses that if the answer came in the same moment.
    """
    loop = asyncio.get_running_loop()
    times = 0

    def cancel() -> None:
        if task is not None:
            task.cancel()
        loop.call_later(_INSIST_SECONDS, cancel)

    def interrupted() -> None:
        nonlocal times
        times += 1
        if times > 1:
            raise KeyboardInterrupt
        cancel()

    with contextlib.suppress(
        NotImplementedError, RuntimeError, ValueError
    ):  # no main thread, or no signals there
        loop.add_signal_handler(signal.SIGINT, interrupted)


def remember_names(
    common: Common,
    devices: Iterable[str],
    deployments: Iterable[str],
    resources: Iterable[str] = (),
) -> None:
    """Keep names for the shell's completion; those of before stay."""
    told = {"devices": devices, "deployments": deployments, "resources": resources}
    names.remember(common.home(), told)


def forget_names(common: Common, devices: Iterable[str]) -> None:
    """Complete these devices no more."""
    names.forget(common.home(), {"devices": devices})


def show_error(error: HarmonyError, output: Output) -> None:
    """An error on standard error, in the form that was asked for."""
    if output is Output.TABLE:
        text = Text.assemble(("error: ", "red"), render.plain(error.message, ""))
        if len(error.details) == 1:
            text.append_text(render.plain(f": {error.details[0]}", ""))
        render.err().print(text, soft_wrap=True)
        several = error.details if len(error.details) > 1 else ()
        for detail, line in itertools.zip_longest(several, error.lines):
            if detail:
                note(f"  {detail}")
            for drawn in line.drawn() if line is not None else ():
                render.err().print(Text(f"    {drawn}"), soft_wrap=True)
        hint(error.hint)
    else:
        sys.stderr.write(render.machine(error.as_json(), output) + "\n")


def write(value: Any, output: Output) -> None:
    """A result on standard output, for a program."""
    sys.stdout.write(render.machine(value, output) + "\n")


def hint(words: str) -> None:
    """Print the next step to standard error."""
    if words:
        render.err().print(
            Text.assemble(("hint:  ", "yellow"), render.plain(words, "")), soft_wrap=True
        )


def note(words: str) -> None:
    """Print a sentence that isn't a result to standard error."""
    render.err().print(
        Text(words[: len(words) - len(words.lstrip())]).append_text(render.plain(words, "")),
        soft_wrap=True,
    )
