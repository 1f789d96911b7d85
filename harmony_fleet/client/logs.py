"""The last lines that a resource wrote, and those that it writes from now on: a device is asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.client.verbs import ask, unreadable
from harmony_fleet.errors import DeviceFailed, InvalidInput, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import check_name
from scores.manifest import SCORE_TYPES
from scores.names import parse_time

_MOST_LINES: Final = 1000
_PAUSE: Final = 1.0
_OVERLAP: Final = 5.0
"""Seconds of which a follower asks again, so that no line falls between two questions."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line, and its time by the device's clock: RFC 3339 in UTC, "" where the device told none."""

    time: str
    text: str


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Lines of `resource` (``Container/web``). `since` is in seconds."""

    resource: str
    lines: int
    since: float | None = None
    times: bool = False


def check(device: str, resource: str) -> None:
    """Raise InvalidInput where there can't be any log."""
    check_name("device", device)
    kind, slash, name = resource.partition("/")
    if kind not in SCORE_TYPES or not slash or not name:
        raise InvalidInput(
            "InvalidResourceKey",
            "cannot use the resource's name",
            "write it as Kind/name, as Container/web",
        )
    if not SCORE_TYPES[kind].restarts:
        raise InvalidInput(
            "NoLogs",
            f"cannot show logs of {resource}: a {kind} has no logs",
            "what the device says of it: harmony status --resources",
        )


async def fetch(
    store: Store, device: str, query: LogQuery, *, following: bool = False
) -> list[LogLine]:
    """Ask once. An agent of an older version tells no times. Raises Unreachable, DeviceFailed."""
    question: dict[str, Any] = {"resource": query.resource, "lines": query.lines}
    newer: dict[str, Any] = {"timestamps": True} if query.times else {}
    if query.since is not None:
        newer["since_seconds"] = query.since
    try:
        found = await _answer(store, device, {**question, **newer})
    except DeviceFailed as error:
        if not newer or error.code != "bad-request":
            raise
        if query.since is not None or following:
            raise DeviceFailed(
                "AgentTooOld",
                f"cannot ask {device} by time: its agent is of an older version",
                "leave out --since and --follow, or upgrade harmony-agent there",
            ) from None
        return [LogLine("", line) for line in await _answer(store, device, question)]
    return [_timed(line) if query.times else LogLine("", line) for line in found]


async def follow(
    store: Store, device: str, query: LogQuery, silent: Callable[[], None]
) -> AsyncGenerator[LogLine, None]:
    """The lines that are there, then each that comes, without end. `silent` hears that the device
    doesn't answer any more; it is asked again.
    """
    found = await fetch(store, device, query, following=True)
    last, asked, answers = (found[-1] if found else None), time.monotonic(), True
    while True:
        for line in found:
            yield line
        await asyncio.sleep(_PAUSE)
        began = time.monotonic()
        more = LogQuery(query.resource, _MOST_LINES, began - asked + _OVERLAP, times=True)
        try:
            found = _after(last, await fetch(store, device, more))
        except Unreachable:
            if answers:
                silent()
            found, answers = [], False
            continue
        asked, answers = began, True
        last = found[-1] if found else last


def _after(last: LogLine | None, found: Sequence[LogLine]) -> list[LogLine]:
    """The lines behind the newest one that was given."""
    at = max((at for at, line in enumerate(found) if line == last), default=-1)
    return list(found[at + 1 :])


async def _answer(store: Store, device: str, question: dict[str, Any]) -> list[str]:
    answer = await ask(store, device, "logs", question, "show the logs")
    if not isinstance(answer.get("lines"), list):
        raise unreadable(device)
    return [str(line) for line in answer["lines"]]


def _timed(line: str) -> LogLine:
    """A line that begins with its time."""
    stamp, _, text = line.partition(" ")
    try:
        parse_time(stamp)
    except ValueError:
        return LogLine("", line)
    return LogLine(stamp, text)
