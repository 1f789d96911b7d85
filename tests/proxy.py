"""A TCP link that a test can break: dropped, or half-open (nothing arrives and nothing fails).
Loopback only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.natsserver import NatsServer


class Link:
    """What goes through it to the server, and how it can be broken. Connections made later are
    whole again.
    """

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
            self.drop()
            await asyncio.sleep(0.01)  # the loop closes the sockets in its next rounds

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

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, thawed: asyncio.Event
    ) -> None:
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


class Between(Link):
    """Somebody who sits between: keeps what both sides send, and while `strips`, takes TLS out of
    the server's INFO.

    A client that shakes hands first is kept waiting until the server, tired of it, has spoken in
    the clear.
    """

    def __init__(self, server: NatsServer, *, strips: bool = False, **forged: Any) -> None:
        """`forged` is what else its INFO says."""
        super().__init__(server)
        self.strips = strips
        self._forged = forged
        self.from_clients: list[bytearray] = []
        """what each connection brought, in their order"""
        self.from_servers: list[bytearray] = []

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Let the server begin, where something is to be taken out."""
        self.made += 1
        brought, said = bytearray(), bytearray()
        self.from_clients.append(brought)
        self.from_servers.append(said)
        self._writers.add(writer)  # closed at the end, however far this came
        handler = asyncio.current_task()
        assert handler is not None
        self._tasks.add(handler)
        handler.add_done_callback(self._tasks.discard)
        to = await asyncio.open_connection(self._server.host, self._server.port)
        self._writers.add(to[1])
        if self.strips:
            info = json.loads((await to[0].readline()).removeprefix(b"INFO ") or b"{}")
            info |= {
                "tls_required": False,
                "tls_available": False,
                "tls_verify": False,
            } | self._forged
            writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        for source, sink, kept in ((reader, to[1], brought), (to[0], writer, said)):
            task = asyncio.create_task(self._keep(source, sink, kept))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _keep(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, kept: bytearray
    ) -> None:
        self._writers.add(sink)
        try:
            with contextlib.suppress(OSError):
                while data := await source.read(65536):
                    kept += data
                    sink.write(data)
                    await sink.drain()
        finally:
            self._writers.discard(sink)
            sink.transport.abort()

    def in_the_clear(self) -> list[bytes]:
        """What clients sent that is no TLS: anything but records of a handshake, of an alert, or
        behind one.
        """
        return [
            bytes(data) for data in self.from_clients if data and not data.startswith(TLS_RECORDS)
        ]


TLS_RECORDS = (b"\x16\x03", b"\x15\x03")
"""How a handshake and an alert begin."""
