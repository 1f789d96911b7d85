"""`harmony logs`: the last lines that a resource wrote, and those that it writes from now on."""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass

from harmony_fleet.client.client import Client
from harmony_fleet.client.logs import LogLine, check
from harmony_fleet.commands.common import Common, note, run_client, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.output.render import Output
from scores.names import parse_time


@dataclass(frozen=True, slots=True)
class Wanted:
    """Lines of `resource` (``Container/web``). `since` is in seconds."""

    resource: str
    lines: int
    since: float | None = None
    timestamps: bool = False
    follow: bool = False


def logs(common: Common, device: str, wanted: Wanted) -> ExitCode:
    """`harmony logs`: asks the device's agent."""
    if wanted.follow and common.output is not Output.TABLE:
        raise InvalidInput(
            "FollowNotForPrograms",
            "cannot follow in this form: it has no end",
            "leave out -o, or ask again with --since",
        )
    check(device, wanted.resource)

    async def work(client: Client) -> ExitCode:
        if wanted.follow:
            return await _follow(client, device, wanted)
        found = await client.logs(
            device, wanted.resource, wanted.lines, wanted.since, times=wanted.timestamps
        )
        if wanted.timestamps and found and not any(line.time for line in found):
            note(f"the agent of {device} is of an older version, and tells no times")
        if common.output is Output.TABLE:
            for line in found:
                _print(line, wanted)
        else:
            lines = [f"{line.time} {line.text}" if line.time else line.text for line in found]
            write({"device": device, "resource": wanted.resource, "lines": lines}, common.output)
        return ExitCode.DONE

    return run_client(common, work)


async def _follow(client: Client, device: str, wanted: Wanted) -> ExitCode:
    """Until somebody ends it."""
    found = client.follow_logs(
        device,
        wanted.resource,
        wanted.lines,
        wanted.since,
        silent=lambda: note(f"{device} doesn't answer: trying again"),
    )
    async with contextlib.aclosing(found) as lines:
        async for line in lines:
            _print(line, wanted)
            sys.stdout.flush()
    return ExitCode.DONE


def _print(line: LogLine, wanted: Wanted) -> None:
    stamp = f"{_local(line.time)} " if wanted.timestamps and line.time else ""
    text = (char if char.isprintable() or char == "\t" else "?" for char in stamp + line.text)
    sys.stdout.write("".join(text) + "\n")


def _local(stamp: str) -> str:
    """A time in the zone of the reader ($TZ)."""
    try:
        return parse_time(stamp).astimezone().isoformat(timespec="milliseconds")
    except OverflowError:  # a device may tell the year 1
        return stamp
