"""The link to a podman that a socket starts, on a device where that takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harmony_agent.adapters.podman import transport
from harmony_agent.adapters.podman.transport import Link
from harmony_agent.core.errors import Transient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"
STARTS, IDLES = 0.4, 0.2


class Slow:
    """A service that takes `STARTS` to come up, and ends when nothing came for `IDLES`."""

    def __init__(self) -> None:
        self.begun, self.last = 0.0, float("-inf")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        now = time.monotonic()
        if now > max(self.last, self.begun + STARTS) + IDLES:
            self.begun = now
        await asyncio.sleep(max(0.0, self.begun + STARTS - now))
        self.last = time.monotonic()
        async with AsyncExitStack() as stack:
            stack.callback(writer.close)
            if not reader.at_eof():
                writer.write(OK)
                await writer.drain()


@asynccontextmanager
async def linked(path: Path) -> AsyncIterator[Link]:
    server = await asyncio.start_unix_server(Slow().serve, str(path))
    async with server:
        yield Link(str(path))


async def test_each_ping_waits_longer_until_a_slow_start_is_met(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CALL_SECONDS", 0.15)
    monkeypatch.setattr(transport, "PING_SECONDS", 0.15)
    async with linked(tmp_path / "s") as link:

        async def ask() -> str:
            async with link.request("GET", "/_ping") as response:
                return str(response.status)

        refused = []
        for _ in range(8):
            try:
                assert await link.call("to ask", ask) == "200"
                break
            except Transient as error:
                refused.append(float(str(error).partition("within ")[2].split()[0]))
                await asyncio.sleep(2 * (STARTS + IDLES))  # it has ended again
        else:
            pytest.fail(f"never met: {refused}")
        assert refused == [0.15 * 2**times for times in range(len(refused))]
        assert len(refused) > 1
