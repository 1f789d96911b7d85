"""nats-py's client, which writes nothing but over the channel that was asked for.

nats-py takes TLS only where the server's INFO asks for it, and INFO comes in the clear. Somebody
between could take the word out, and would get the JWT, the signature and all that follows. Here the
transport itself refuses to write before TLS stands, in the first connection and in each later one.
The handshake comes first. A server that speaks first gets its handshake after INFO.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any, Final
from urllib.parse import ParseResult

import nats.errors
from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
from nats.aio.transport import TcpTransport

_SAID: Final = "TLS isn't offered there, and nothing is sent without it"


class NotEncrypted(nats.errors.Error):
    """`server` speaks no TLS, though it must; nothing was sent to it."""

    def __init__(self, server: str) -> None:
        super().__init__(_SAID)
        self.server = server


class TlsTransport(TcpTransport):
    """TCP over which nothing is written before TLS stands."""

    def __init__(self, context: ssl.SSLContext, name: str, spoke_first: set[str]) -> None:
        """`name` is what the certificate must be for; `spoke_first` remembers servers over several
        connections.
        """
        super().__init__()
        self._context = context
        self._name = name
        self._spoke_first = spoke_first
        self._place = ""
        self.encrypted = False

    async def connect(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        """Shake hands at once; where the server spoke before, connect again and await its INFO."""
        self._place = uri.netloc.rpartition("@")[2]
        if self._place not in self._spoke_first:
            try:
                await self._shake_hands(uri, buffer_size, connect_timeout)
            except ssl.SSLCertVerificationError:
                raise
            except ssl.SSLError:  # what came is no TLS: INFO
                pass
            else:
                return
        self._spoke_first.discard(self._place)  # until it has done so again
        await super().connect(uri, buffer_size, connect_timeout)

    async def _shake_hands(self, uri: ParseResult, buffer_size: int, connect_timeout: int) -> None:
        async with asyncio.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(
                uri.hostname,
                uri.port,
                limit=buffer_size,
                ssl=self._context,
                server_hostname=self._name,
            )
        self._bare_io_reader, self._bare_io_writer = self._io_reader, self._io_writer = (
            reader,
            writer,
        )
        self.encrypted = True

    async def connect_tls(
        self,
        uri: str | ParseResult,
        ssl_context: ssl.SSLContext,
        buffer_size: int,
        connect_timeout: int,
    ) -> None:
        """Shake hands after INFO, where that wasn't done before."""
        if not self.encrypted:
            await super().connect_tls(uri, ssl_context, buffer_size, connect_timeout)
            self.encrypted = True
            self._spoke_first.add(self._place)

    def write(self, payload: bytes) -> None:
        """Raise NotEncrypted instead of writing in the clear."""
        self._guard()
        super().write(payload)

    def writelines(self, payload: Iterable[bytes]) -> None:
        """Raise NotEncrypted instead of writing in the clear."""
        self._guard()
        super().writelines(payload)

    def _guard(self) -> None:
        if not self.encrypted:
            self.close()
            raise NotEncrypted(self._place)


class ChannelClient(Client):
    """A client that takes `needs_tls(url)` for an order, for servers of its list and for those it
    learns of.
    """

    def __init__(
        self, needs_tls: Callable[[str], bool], spoke_first: set[str] | None = None
    ) -> None:
        super().__init__()
        self._needs_tls = needs_tls
        self._spoke_first = set() if spoke_first is None else spoke_first

    async def _connect_to_server(self, s: Srv) -> None:
        """As nats-py's, with a transport of our choice; the one before is closed, whatever came of
        it.
        """
        s.last_attempt = time.monotonic()
        if self._transport is not None:
            self._transport.close()
        self._transport = TcpTransport()
        if self._needs_tls(s.uri.geturl()):
            name = s.tls_name or s.uri.hostname or ""
            self._transport = TlsTransport(self.ssl_context, name, self._spoke_first)
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Learn of no server from an INFO in the clear: anybody may have written it, and own a
        certificate.
        """
        transport = self._transport
        if isinstance(transport, TlsTransport) and not transport.encrypted:
            info = {key: value for key, value in info.items() if key != "connect_urls"}
        await super()._process_info(info, initial_connection)
