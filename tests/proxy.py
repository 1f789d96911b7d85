"""A TCP link that a test can break: dropped, or half-open (nothing arrives and nothing fails). Loopback only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.natsserver import NatsServer


class Link:
    """What goes through it to the server, and how it can be broken. Connections made later are whole again."""

    def __init__(self, server: NatsServer) -> None:
        self._server = server
        self._writers: set[asyncio.StreamWriter] = set()
        self._thawed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.made = 0
        """connections that were made, over all time"""

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def drop(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.transport.abort()

    def freeze(self) -> None:
        """Every connection that there is stays open, and carries nothing any more."""
        self._thawed.clear()
        self._thawed = asyncio.Event()
        self._thawed.set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Link]:
        self._thawed.set()
        listener = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            listener.close()
            self.drop()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.made += 1
        thawed = self._thawed
        try:
            to = await asyncio.open_connection(self._server.host, self._server.port)
        except OSError:
            writer.transport.abort()
            return
        for source, sink in ((reader, to[1]), (to[0], writer)):
            task = asyncio.create_task(self._carry(source, sink, thawed))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, thawed: asyncio.Event) -> None:
        self._writers.add(sink)
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    await thawed.wait()  # for ever, once it is frozen
                    sink.write(data)
                    await sink.drain()
        finally:
            self._writers.discard(sink)
            sink.transport.abort()
