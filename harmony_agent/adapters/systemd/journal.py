"""Read a unit's last log lines, and how a one-shot ended, by journalctl.

The argument lists are fixed. Every answer is bounded in size and time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from datetime import UTC, datetime
from typing import Final, Literal

import anyio

from harmony_agent.adapters.host import boot_id
from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import LogLine

TIMEOUT: Final = 10.0
_MOST: Final = 1024 * 1024
_STARTED: Final = "39f53479d3a045ac8e11786248231fbf"
"""SD_MESSAGE_UNIT_STARTED. A one-shot ended well; without an invocation, it was skipped."""

Scope = Literal["user", "system"]


async def tail(scope: Scope, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
    """Return the last `lines` lines of unit `name`, 1 MiB at most, oldest first; those of the last
    `seconds` where that is set.
    """
    since = [] if seconds is None else [f"--since=-{seconds:.6f}s"]
    form = ("--output=json", "--output-fields=MESSAGE", "--all")
    text = await read(scope, name, f"--lines={lines}", *form, *since)
    entries = [line for entry in text.split("\n") for line in _lines(entry)]
    return entries[-lines:]


def _lines(entry: str) -> list[LogLine]:
    """The lines of one entry; none of the first one's where it was cut."""
    try:
        found = json.loads(entry)
        message, moment = found.get("MESSAGE", ""), int(found["__REALTIME_TIMESTAMP"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    if isinstance(message, list):  # bytes that are no UTF-8
        message = bytes(message).decode(errors="replace")
    time = datetime.fromtimestamp(moment // 1_000_000, UTC).replace(microsecond=moment % 1_000_000)
    stamp = time.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"
    return [LogLine(stamp, line) for line in str(message or "").splitlines() or [""]]


def cursor() -> str:
    """Return the present moment: a boot, and microseconds since it began.

    Setting the wall clock doesn't move it.
    """
    return f"{boot_id().replace('-', '')}:{time.monotonic_ns() // 1000}"


async def finished(scope: Scope, name: str, since: str) -> bool:
    """Return whether a start of the one-shot `name` ended well after the moment `since`.

    False if the journal doesn't say.
    """
    boot, _, after = since.partition(":")
    matches = (f"MESSAGE_ID={_STARTED}", "JOB_RESULT=done", f"_BOOT_ID={boot}")
    fields = "--output-fields=USER_INVOCATION_ID,INVOCATION_ID"
    try:
        text = await read(scope, name, *matches, "--lines=1", "--output=json", fields)
        entry = json.loads(text or "{}")
        ran = entry.get("USER_INVOCATION_ID") or entry.get("INVOCATION_ID")
        return bool(ran) and int(entry.get("__MONOTONIC_TIMESTAMP", 0)) > int(after)
    except (Transient, ValueError):
        return False


async def read(scope: Scope, name: str, *options: str) -> str:
    """Return what journalctl prints of `name`, 1 MiB at most. Raises Transient."""
    # Not --user, which would pass over a journal that isn't kept by user, as one in memory isn't.
    which = [f"--user-unit={name}"] if scope == "user" else [f"--unit={name}"]
    argv = ["journalctl", *which, "--no-pager", "--quiet", *options]
    chunks: deque[bytes] = deque()
    held = 0
    try:
        with anyio.fail_after(TIMEOUT):
            async with await anyio.open_process(argv, stdin=None, stderr=None) as process:
                assert process.stdout is not None  # noqa: S101 - it is a pipe unless told otherwise
                async for chunk in process.stdout:
                    chunks.append(chunk)
                    held += len(chunk)
                    while held - len(chunks[0]) >= _MOST:
                        held -= len(chunks.popleft())
    except TimeoutError as error:
        raise Transient(
            "JournalTimeout", f"cannot read the journal of {name} within {TIMEOUT:g} s"
        ) from error
    except OSError as error:
        raise Transient("JournalUnreadable", f"cannot run journalctl: {error.strerror}") from error
    return b"".join(chunks)[-_MOST:].decode(errors="replace")
