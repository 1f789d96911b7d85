"""`harmony logs`: the last lines that a resource wrote, and those that it writes from now on."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.commands.common import Common, note, run, write
from harmony_fleet.errors import DeviceFailed, ExitCode, InvalidInput, Unreachable
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import check_name, told
from harmony_fleet.output.render import Output
from scores.canonical import NotCanonical, canonical
from scores.keys import command_subject
from scores.manifest import SCORE_TYPES
from scores.names import parse_time

_SECONDS: Final = 10.0
_MAX_ANSWER: Final = 1024 * 1024
_MOST_LINES: Final = 1000
_PAUSE: Final = 1.0
_OVERLAP: Final = 5.0
"""Seconds of which a follower asks again, so that no line falls between two questions."""


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
    check_name("device", device)
    _check(wanted, common.output)

    async def work(store: Store) -> ExitCode:
        found = await _ask(store, device, wanted)
        if common.output is not Output.TABLE:
            write({"device": device, "resource": wanted.resource, "lines": found}, common.output)
            return ExitCode.DONE
        _print(found, wanted)
        if wanted.follow:
            await _follow(store, device, wanted, found)
        return ExitCode.DONE

    return run(common, work)


def _check(wanted: Wanted, output: Output) -> None:
    kind, slash, name = wanted.resource.partition("/")
    if kind not in SCORE_TYPES or not slash or not name:
        raise InvalidInput(
            "InvalidResourceKey",
            "cannot use the resource's name",
            "write it as Kind/name, as Container/web",
        )
    if not SCORE_TYPES[kind].restarts:
        raise InvalidInput(
            "NoLogs",
            f"cannot show logs of {wanted.resource}: a {kind} has no logs",
            "what the device says of it: harmony status --resources",
        )
    if wanted.follow and output is not Output.TABLE:
        raise InvalidInput(
            "FollowNotForPrograms",
            "cannot follow in this form: it has no end",
            "leave out -o, or ask again with --since",
        )


async def _follow(store: Store, device: str, wanted: Wanted, seen: Sequence[str]) -> None:
    """Ask again and again, until somebody ends it."""
    last, asked, silent = (seen[-1] if seen else ""), time.monotonic(), False
    while True:
        await asyncio.sleep(_PAUSE)
        began = time.monotonic()
        more = Wanted(
            wanted.resource, _MOST_LINES, began - asked + _OVERLAP, wanted.timestamps, follow=True
        )
        try:
            found = await _ask(store, device, more)
        except Unreachable:
            if not silent:
                note(f"{device} doesn't answer: trying again")
            silent = True
            continue
        asked, silent = began, False
        fresh = _after(last, found)
        _print(fresh, wanted)
        last = fresh[-1] if fresh else last


def _after(last: str, found: list[str]) -> list[str]:
    """The lines behind the newest one that was shown."""
    at = len(found) - 1 - found[::-1].index(last) if last in found else -1
    return found[at + 1 :]


async def _ask(store: Store, device: str, wanted: Wanted) -> list[str]:
    """The lines; each begins with its time, where times are shown or told apart by."""
    question: dict[str, Any] = {"resource": wanted.resource, "lines": wanted.lines}
    newer: dict[str, Any] = {}
    if wanted.timestamps or wanted.follow:
        newer["timestamps"] = True
    if wanted.since is not None:
        newer["since_seconds"] = wanted.since
    try:
        return await _answer(store, device, {**question, **newer})
    except DeviceFailed as error:
        if not newer or error.code != "bad-request":
            raise
    if wanted.since is not None or wanted.follow:
        raise DeviceFailed(
            "AgentTooOld",
            f"cannot ask {device} by time: its agent is of an older version",
            "leave out --since and --follow, or upgrade harmony-agent there",
        )
    note(f"the agent of {device} is of an older version, and tells no times")
    return await _answer(store, device, question)


async def _answer(store: Store, device: str, question: dict[str, Any]) -> list[str]:
    answer = await store.ask(command_subject(device, "logs"), canonical(question), _SECONDS)
    if answer is None:
        raise Unreachable(
            "DeviceSilent",
            f"cannot ask {device} for logs: it doesn't answer",
            "see whether it runs: harmony devices",
        )
    return _lines(answer, device)


def _lines(answer: bytes, device: str) -> list[str]:
    """``{"ok":true,"lines":[…]}`` or ``{"ok":false,"error":{"code","message"}}``."""
    try:
        value = told(answer, _MAX_ANSWER)
    except NotCanonical:
        value = None
    if isinstance(value, dict) and value.get("ok") is True and isinstance(value.get("lines"), list):
        return [str(line) for line in value["lines"]]
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        raise DeviceFailed(
            "AnswerUnreadable",
            f"cannot read the answer of {device}",
            "is its agent of another version?",
        )
    code, message = str(error.get("code", "Unknown")), str(error.get("message", ""))
    raise DeviceFailed(
        code, f"{device} can't show the logs: {code}: {message}", "see harmony status --resources"
    )


def _print(lines: Sequence[str], wanted: Wanted) -> None:
    for line in lines:
        stamp, _, text = (
            line.partition(" ") if wanted.follow or wanted.timestamps else ("", "", line)
        )
        shown = f"{_local(stamp)} {text}" if wanted.timestamps and stamp else text
        sys.stdout.write(
            "".join(char if char.isprintable() or char == "\t" else "?" for char in shown) + "\n"
        )
    sys.stdout.flush()


def _local(stamp: str) -> str:
    """A time in the zone of the reader ($TZ)."""
    try:
        return parse_time(stamp).astimezone().isoformat(timespec="milliseconds")
    except ValueError:
        return stamp
