"""Read a unit's last log lines, and how a one-shot ended, by journalctl.

The argument lists are fixed. Every answer is bounded in size and time.
"""

from __future__ import annotations

import json
import time
from collections import deque
from typing import Final, Literal

import anyio

from harmony_agent.adapters.host import boot_id
from harmony_agent.core.errors import Transient

TIMEOUT: Final = 10.0
_MOST: Final = 1024 * 1024
_STARTED: Final = "39f53479d3a045ac8e11786248231fbf"
"""SD_MESSAGE_UNIT_STARTED. A one-shot ended well; without an invocation, it was skipped."""

Scope = Literal["user", "system"]


async def tail(scope: Scope, name: str, lines: int) -> list[str]:
    """Return the last `lines` lines of unit `name`, 1 MiB at most, oldest first."""
    text = await _read(scope, name, f"--lines={lines}", "--output=cat", "--all")
    return text.splitlines()[-lines:]


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
        text = await _read(scope, name, *matches, "--lines=1", "--output=json", fields)
        entry = json.loads(text or "{}")
        ran = entry.get("USER_INVOCATION_ID") or entry.get("INVOCATION_ID")
        return bool(ran) and int(entry.get("__MONOTONIC_TIMESTAMP", 0)) > int(after)
    except (Transient, ValueError):
        return False


async def _read(scope: Scope, name: str, *options: str) -> str:
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
