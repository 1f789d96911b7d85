"""HTTP/1.1 for one exchange over one connection, in asyncio. h11 reads and writes the protocol.

For podman's Unix socket and for probes. No pool, no redirects, no cookies. The caller bounds the
time; cancelling closes the connection. Must not log: what goes through may hold values of an
environment.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlencode

import h11

Opening = Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]

_CHUNK: Final = 64 * 1024


class BrokenOff(OSError):
    """The other side hung up, or speaks something else than HTTP."""


class Response:
    """An answer whose body hasn't been read yet."""

    def __init__(
        self, connection: h11.Connection, reader: asyncio.StreamReader, head: h11.Response
    ) -> None:
        self._connection = connection
        self._reader = reader
        self.status = head.status_code

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body, as it arrives."""
        while isinstance(event := await _next_event(self._connection, self._reader), h11.Data):
            yield bytes(event.data)

    async def lines(self) -> AsyncIterator[bytes]:
        """The body in lines, without their ends."""
        rest = b""
        async for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                yield line
        if rest:
            yield rest

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([chunk async for chunk in self.chunks()])

    async def json(self) -> Any:
        """The whole body, as JSON."""
        return json.loads(await self.read())


@asynccontextmanager
async def exchange(
    opening: Opening,
    method: str,
    path: str,
    *,
    params: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[Response]:
    """Send one request and give its answer. The connection is closed afterwards.

    Raises OSError; of it, BrokenOff.
    """
    reader, writer = await opening
    connection = h11.Connection(h11.CLIENT)
    fields = {
        "Host": "localhost",
        "User-Agent": "harmony-agent",
        "Connection": "close",
        **(headers or {}),
    }
    if body is not None:
        fields |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    target = f"{path}?{urlencode(params)}" if params else path
    request = h11.Request(method=method, target=target, headers=list(fields.items()))
    events: list[h11.Event] = [
        request,
        *([h11.Data(data=body)] if body else []),
        h11.EndOfMessage(),
    ]
    try:
        writer.write(b"".join(connection.send(event) or b"" for event in events))
        await writer.drain()
        yield Response(connection, reader, await _head(connection, reader))
    finally:
        writer.close()


async def _head(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Response:
    while not isinstance(event := await _next_event(connection, reader), h11.Response):
        if not isinstance(event, h11.InformationalResponse):
            raise BrokenOff("no HTTP answer came")
    return event


async def _next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> Any:
    try:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
    except h11.RemoteProtocolError:
        raise BrokenOff("the answer broke off, or is no HTTP") from None
    return event
