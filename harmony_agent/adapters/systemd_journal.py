"""The last lines that a unit logged, read by journalctl with a fixed argument list. No shell, a bounded answer."""

from __future__ import annotations

from collections import deque
from typing import Final, Literal

import anyio

from harmony_agent.core.errors import Transient

TIMEOUT: Final = 10.0
_MOST: Final = 1024 * 1024


async def tail(scope: Literal["user", "system"], name: str, lines: int) -> list[str]:
    """At most `lines` lines and 1 MiB of what unit `name` logged last, oldest first."""
    which = ["--user", f"--user-unit={name}"] if scope == "user" else [f"--unit={name}"]
    argv = ["journalctl", *which, f"--lines={lines}", "--output=cat", "--no-pager", "--quiet", "--all"]
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
        raise Transient("JournalTimeout", f"cannot read the journal of {name} within {TIMEOUT:g} s") from error
    except OSError as error:
        raise Transient("JournalUnreadable", f"cannot run journalctl: {error.strerror}") from error
    text = b"".join(chunks)[-_MOST:].decode(errors="replace")
    return text.splitlines()[-lines:]
