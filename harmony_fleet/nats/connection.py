"""One connection to NATS: log in, ask, subscribe. It and `tolerant` alone import nats; its
errors stop here.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from harmony_fleet.context import Context, check_creds
from harmony_fleet.errors import HarmonyError, InvalidInput, Unreachable
from harmony_fleet.nats.tolerant import TolerantClient
from harmony_fleet.storage.regular import read_regular
from harmony_nats.channel import NotEncrypted
from scores.jetstream import API, answered

# What the library would log is told by our own errors.
logging.getLogger("nats").addHandler(logging.NullHandler())
# Nor that a TLS connection was closed by its other end: asyncio warns of it, and nothing follows
# from it.
logging.getLogger("asyncio").addFilter(
    lambda record: not record.getMessage().startswith("returning true from eof_")
)

REQUEST_SECONDS: Final = 5.0
CONNECT_SECONDS: Final = 5.0
_PARTS: Final = 4


class NoResponders(Exception):
    """Nobody listens on the subject."""


class Inbox:
    """A subject of our own on which answers come."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self._subscription: Subscription | None = None
        self._come: deque[Msg] = deque()
        self._news = asyncio.Event()

    async def open(self, client: Client) -> Inbox:
        """Begin to listen."""
        self._subscription = await client.subscribe(self.subject, cb=self._take)
        return self

    async def _take(self, message: Msg) -> None:
        self._come.append(message)
        self._news.set()

    async def next(self, seconds: float) -> Msg | None:
        """The next message; None after `seconds` of silence. What has come already costs no turn of
        the loop.

        Silence is counted in parts: one that a busy process slept through says nothing of what
        waits to be read.
        """
        for _ in range(_PARTS):
            if self._come:
                break
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds / _PARTS):
                    await self._news.wait()
        return self._come.popleft() if self._come else None

    async def close(self) -> None:
        """Give the subject up."""
        if self._subscription is not None:
            with contextlib.suppress(OSError, nats.errors.Error):
                await self._subscription.unsubscribe()


class Connection:
    """Use as ``async with Connection(context) as connection``. A lost connection is tried again
    without end.
    """

    def __init__(self, context: Context, seconds: float = CONNECT_SECONDS) -> None:
        self._context = context
        self._seconds = seconds
        self._client = TolerantClient(context.needs_tls)
        self._last_error: Exception | None = None
        self._bare: NotEncrypted | None = None
        """the last refusal for lack of TLS since the last connection"""
        self._refused = asyncio.Event()

    async def __aenter__(self) -> Connection:
        options = self._options()
        try:
            async with asyncio.timeout(self._seconds):
                await self._connect(options)
        except (TimeoutError, OSError, nats.errors.Error) as error:
            await self._close()
            raise self.unreachable(error) from None
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _close(self) -> None:
        """The client flushes first, and fails where the connection is broken already."""
        with contextlib.suppress(OSError, nats.errors.Error):
            await self._client.close()

    async def _connect(self, options: dict[str, Any]) -> None:
        """Try until it stands; the client would also try a refused login, and servers without TLS,
        without end.
        """
        connecting = asyncio.ensure_future(self._client.connect(**options))
        refused = asyncio.ensure_future(self._refused.wait())
        try:
            await asyncio.wait({connecting, refused}, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise self._bare or nats.errors.AuthorizationError
            await connecting
        finally:
            connecting.cancel()
            refused.cancel()
            await asyncio.gather(connecting, refused, return_exceptions=True)

    def _options(self) -> dict[str, Any]:
        bare = set[str]()

        async def remember(error: Exception) -> None:
            self._last_error = error
            if isinstance(error, NotEncrypted):
                self._bare = error
                bare.add(error.server)
            if "authorization" in str(error).lower() or len(bare) >= len(self._context.servers):
                self._refused.set()

        async def forget() -> None:
            self._bare = None

        options: dict[str, Any] = {
            "servers": list(self._context.servers),
            "name": "harmony",
            "error_cb": remember,
            "reconnected_cb": forget,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.5,
            "ping_interval": 10,
            "max_outstanding_pings": 2,
        }
        if self._context.creds is not None:
            check_creds(self._context.creds)
            options["user_credentials"] = str(self._context.creds)
        if self._context.tls_ca is not None:
            try:
                read_regular(self._context.tls_ca)  # an open of the library's own may hang
                options["tls"] = ssl.create_default_context(cafile=str(self._context.tls_ca))
            except (ssl.SSLError, OSError):
                raise InvalidInput(
                    "TlsInvalid",
                    f"cannot use {self._context.tls_ca}: it holds no certificate",
                    "give a PEM file",
                ) from None
        return options

    def unreachable(self, error: Exception) -> HarmonyError:
        """The connection's fault in an operator's words."""
        cause = error
        if (
            isinstance(error, TimeoutError)
            and not self._client.is_connected
            and self._last_error is not None
        ):
            cause = self._bare or self._last_error
        place = self._context.place()
        if (insecure := _channel_fault(cause, place)) is not None:
            return insecure
        if (
            isinstance(error, TimeoutError)
            and "permissions violation" in str(self._last_error).lower()
        ):
            refused = str(self._last_error).removeprefix("nats: ")
            return Unreachable(
                "NotAllowed",
                f"cannot do this with these credentials at {place}: {refused}",
                "use an operator's credentials",
            )
        if "authorization" in str(cause).lower():
            return Unreachable(
                "NotAuthorized",
                f"cannot log in to NATS at {place}",
                "check --creds, $HARMONY_CREDS or context.toml",
            )
        return Unreachable(
            "NatsUnreachable",
            f"cannot reach NATS at {place}: {_why(cause)}",
            "check that it runs, and --server or $HARMONY_SERVER",
        )

    @property
    def connected(self) -> bool:
        """Return whether the connection stands at the moment."""
        return bool(self._client.is_connected)

    @property
    def max_payload(self) -> int:
        """Bytes that the server takes in one message, headers included."""
        return int(self._client.max_payload or 1024 * 1024)

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        seconds: float = REQUEST_SECONDS,
    ) -> bytes:
        """Ask and wait for one answer. Raises NoResponders, Unreachable."""
        try:
            return bytes(
                (
                    await self._client.request(subject, payload, timeout=seconds, headers=headers)
                ).data
            )
        except nats.errors.NoRespondersError:
            raise NoResponders from None
        except (TimeoutError, OSError, nats.errors.Error) as error:
            raise self.unreachable(error) from None

    async def api(self, verb: str, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One call of JetStream's JSON API. Raises ApiError, Unreachable."""
        payload = json.dumps(request).encode() if request is not None else b""
        try:
            return answered(await self.request(f"{API}.{verb}", payload))
        except NoResponders:
            raise Unreachable(
                "NoJetStream",
                f"cannot use JetStream at {self._context.place()}: nothing answers",
                "enable jetstream in the server, or check the account's permissions",
            ) from None

    async def inbox(self) -> Inbox:
        """A new subject that only we listen on."""
        return await Inbox(self._client.new_inbox()).open(self._client)

    async def publish(self, subject: str, payload: bytes, reply: str = "") -> None:
        """Send without waiting. Raises Unreachable where the connection is gone."""
        try:
            await self._client.publish(subject, payload, reply=reply)
        except (OSError, nats.errors.Error) as error:
            raise self.unreachable(error) from None


def _channel_fault(cause: Exception, place: str) -> Unreachable | None:
    """The fault of a channel that isn't what was asked for; nothing was sent over it."""
    if isinstance(cause, NotEncrypted):
        return Unreachable(
            "TlsMissing",
            f"cannot reach NATS at {place}: {cause}",
            "have the server speak TLS (if it does, somebody between takes it out); without, give --insecure",
        )
    if isinstance(cause, ssl.SSLCertVerificationError):
        return Unreachable(
            "TlsUntrusted",
            f"cannot reach NATS at {place}: its certificate isn't trusted: {cause.verify_message}",
            "check --tls-ca, $HARMONY_TLS_CA or context.toml, and the server's name",
        )
    return None


def _why(cause: Exception) -> str:
    if isinstance(cause, TimeoutError):
        return "no answer in time"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause).removeprefix("nats: ") or type(cause).__name__
