"""A socket in the state directory, on which `harmony-agent status` asks the running agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

log = logging.getLogger(__name__)

NAME: Final = "agent.sock"
_SECONDS: Final = 5.0
_MAX_PATH: Final = 107


async def serve(
    state_dir: Path, answer: Callable[[], Any], anew: asyncio.Event | None = None
) -> None:
    """Write `answer()` as JSON to each client, until cancelled. Only the owner and root connect.

    `anew` is set when the directory was made anew. The socket is then made anew as well.
    """

    async def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                writer.write(json.dumps(answer()).encode())
                async with asyncio.timeout(_SECONDS):
                    await writer.drain()
        finally:
            writer.close()

    path, anew = state_dir / NAME, anew or asyncio.Event()
    if len(os.fsencode(path)) > _MAX_PATH:
        return
    while True:
        anew.clear()
        try:
            path.unlink(missing_ok=True)  # of a killed agent: the lock says that none runs
            server = await asyncio.start_unix_server(connected, path)
        except OSError as error:
            log.warning(
                "cannot listen at %s: %s: `harmony-agent status` stays without an answer",
                path,
                error.strerror,
            )
            await anew.wait()
            continue
        try:
            path.chmod(0o600)
            await anew.wait()
        finally:
            server.close()
            path.unlink(missing_ok=True)


def ask(state_dir: Path) -> Any:
    """Ask the running agent for its status.

    Raises OSError if no agent runs, or if it ends meanwhile.
    """
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(_SECONDS)
        client.connect(os.fspath(state_dir / NAME))
        parts = []
        while part := client.recv(65536):
            parts.append(part)
    try:
        return json.loads(b"".join(parts))
    except ValueError:
        raise ConnectionError("the agent ended while it answered") from None
