"""The connection to NATS, with plain requests and subscriptions over it. Knows of no bucket.

Connects again without end, with jitter. Each connection has a client of its own, so a subscription
goes with its connection, and its owner makes it anew. A connection over which nothing comes back is
given up after a request's time-out or two pings, whichever is first.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

import anyio
import nats.errors
from nats.aio.msg import Msg

from harmony_agent.adapters.nats.shutdown import close
from harmony_agent.topology.control_plane import Unreachable
from harmony_nats.channel import ChannelClient, NotEncrypted
from scores.channel import needs_tls

log = logging.getLogger(__name__)
# asyncio warns that the other end closed a TLS connection. Nothing follows from it.
logging.getLogger("asyncio").addFilter(
    lambda record: not record.getMessage().startswith("returning true from eof_")
)

TIMEOUT: Final = 2.0
"""Seconds that one request may take."""
PING_SECONDS: Final = 4
WAIT_SECONDS: Final = 0.05
"""Before the first try to connect again. Each next wait is twice as long, with jitter."""
MOST_WAIT_SECONDS: Final = 1.0
"""The longest wait after a refusal, which costs a server nothing."""
MOST_SLOW_SECONDS: Final = 30.0
"""The longest wait after tries that timed out: thousands that come early make a server slower."""
_CONNECT_SECONDS: Final = 3
_CLOSE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 5.0
_ALIVE_SECONDS: Final = 0.5


class NoResponders(Unreachable):
    """Nobody listens: a bucket that isn't there, or that is between two leaders."""


class NatsConnection:
    """One connection after the other, by `name`, to whichever of `servers` answers."""

    def __init__(
        self,
        name: str,
        servers: Sequence[str],
        *,
        credentials: str = "",
        tls_ca: str = "",
        insecure: bool = False,
        inbox_prefix: str = "",
    ) -> None:
        """`credentials` and `tls_ca` are paths of files.

        `insecure` lets credentials go in the clear. With an `inbox_prefix`, answers come below that
        alone.
        """
        self.name = name
        self._servers = list(servers)
        self._credentials = credentials
        self._tls_ca = tls_ca
        self._insecure = insecure
        self._inbox_prefix = inbox_prefix
        self._spoke_first: set[str] = set()
        self._denied = ""
        self._client = self._new_client()
        self._given_up = asyncio.Event()
        self._up = False
        self._connection_changed = asyncio.Event()
        self._came: list[Callable[[], None]] = []
        self.attempts = 0
        """Count of tries to connect."""
        self.trouble = ""
        """Cause of no connection. Empty while there is one, and before the first try."""

    def connected(self) -> bool:
        """Return whether there is a connection now."""
        return bool(self._client.is_connected)

    def on_connect(self, came: Callable[[], None]) -> None:
        """Call `came` after each new connection."""
        self._came.append(came)

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        tries = slow = 0
        try:
            while True:
                self._client, self._given_up, self._up = self._new_client(), asyncio.Event(), False
                try:
                    await self._connect()
                    tries, slow, self.trouble = 0, 0, ""
                    await self._until_lost()
                    log.warning("lost the connection to NATS")
                except Exception as error:  # whatever it is, the device goes on without NATS
                    cause = _cause(error)
                    if cause != self.trouble:  # once for each cause, not for each try
                        log.warning(
                            "cannot connect to NATS at %s: %s",
                            self._places(),
                            cause,
                            extra=_reason(error),
                        )
                    tries, self.trouble = tries + 1, cause
                    slow = slow + 1 if isinstance(error, TimeoutError) else 0
                await self._close()
                await anyio.sleep(
                    max(_wait(tries, MOST_WAIT_SECONDS), _wait(slow, MOST_SLOW_SECONDS))
                )
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    def _new_client(self) -> ChannelClient:
        credentials = bool(self._credentials) or any("@" in server for server in self._servers)
        needs = partial(
            needs_tls, tls_ca=bool(self._tls_ca), credentials=credentials, insecure=self._insecure
        )
        return ChannelClient(needs, self._spoke_first)

    def _places(self) -> str:
        """Name the servers, without the user and password that a URL may hold."""
        return ", ".join(server.rpartition("@")[2] for server in self._servers)

    async def _connect(self) -> None:
        self.attempts += 1
        self._error: Exception | None = None
        with anyio.fail_after(4 * _CONNECT_SECONDS * len(self._servers)):
            try:
                await self._client.connect(servers=self._servers, **self._options())
            except nats.errors.NoServersError as error:
                raise self._error or error from None
        if not self._client.is_connected:
            raise TimeoutError("the server did not finish its greeting")
        self._up = True
        log.info(
            "connected to NATS",
            extra={"server": getattr(self._client.connected_url, "hostname", "")},
        )
        self._connection_changed.set()
        self._connection_changed = asyncio.Event()
        for came in self._came:
            came()

    def _options(self) -> dict[str, Any]:
        given_up = self._given_up

        async def closed() -> None:
            given_up.set()

        async def failed(error: Exception) -> None:
            self._error = error
            if "permissions violation" in str(error).lower():
                self._denied = str(error).lower()
            log.debug("NATS: %s", _word(error))

        options: dict[str, Any] = {
            "name": self.name,
            "connect_timeout": _CONNECT_SECONDS,
            "ping_interval": PING_SECONDS,
            "max_outstanding_pings": 2,
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,  # of one call; `run` calls without end
            "reconnect_time_wait": 0,
            "error_cb": failed,
            "closed_cb": closed,
        }
        if self._inbox_prefix:
            options["inbox_prefix"] = self._inbox_prefix
        if self._credentials:
            options["user_credentials"] = self._credentials
        if self._tls_ca:
            options["tls"] = ssl.create_default_context(cafile=self._tls_ca)
        return options

    async def _until_lost(self) -> None:
        """Wait until the client has closed. It may hang in closing, so look now and then."""
        while self._client.is_connected and not self._given_up.is_set():
            with anyio.move_on_after(_LOOK_SECONDS):
                await self._given_up.wait()

    async def _close(self) -> None:
        await close(self._client, _CLOSE_SECONDS)

    # -- over it

    async def ask(
        self,
        subject: str,
        payload: bytes = b"",
        headers: dict[str, str] | None = None,
        seconds: float = TIMEOUT,
    ) -> Msg:
        """Send a request and return its answer. Raises Unreachable; of it, NoResponders."""
        client, given_up = self._client, self._given_up
        if not client.is_connected:
            if self._up:  # closed, or still closing
                given_up.set()
            raise Unreachable("there is no connection to NATS")
        try:
            reply = await client.request(subject, payload, timeout=seconds, headers=headers)
        except nats.errors.NoRespondersError:
            raise NoResponders(
                f"nothing listens on {subject}: is JetStream on, and has it a leader?"
            ) from None
        except (TimeoutError, nats.errors.TimeoutError):
            if not await _alive(client):
                given_up.set()
            raise Unreachable(f"no answer from NATS within {seconds:g} s") from None
        except (nats.errors.Error, OSError) as error:
            raise Unreachable(f"NATS: {_word(error)}") from error
        return reply

    def was_denied(self, subject: str) -> bool:
        """Return whether the server's last refusal for lack of permission was about `subject`."""
        return subject.lower() in self._denied

    async def subscribe(self, subject: str, arrived: Callable[[Msg], Awaitable[None]]) -> Any:
        """Subscribe, as long as the connection lasts. Raises Unreachable."""
        if not self._client.is_connected:
            raise Unreachable("there is no connection to NATS")
        try:
            return await self._client.subscribe(subject, cb=arrived)
        except (nats.errors.Error, OSError) as error:
            raise Unreachable(f"NATS: {_word(error)}") from error


async def _alive(client: ChannelClient) -> bool:
    """Return whether the server itself answers. A request may take long, as during an election."""
    try:
        await client.flush(timeout=_ALIVE_SECONDS)  # type: ignore[arg-type]  # any number will do
    except (TimeoutError, nats.errors.Error, OSError):
        return False
    return True


def _wait(tries: int, most: float) -> float:
    """Seconds before the next try to connect, after `tries` in a row that failed."""
    return min(most, WAIT_SECONDS * 2.0 ** min(tries, 16)) * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, no secret


def _reason(error: Exception) -> dict[str, str]:
    """Return the code of a channel that isn't as it should be, as the log's `extra`."""
    if isinstance(error, NotEncrypted):
        return {"reason": "TlsMissing"}
    return {"reason": "TlsUntrusted"} if isinstance(error, ssl.SSLCertVerificationError) else {}


def _cause(error: Exception) -> str:
    """Explain why there is no connection.

    Leaves out texts that may repeat a credential.
    """
    code = _reason(error).get("reason")
    if code:
        return f"{code}: {_word(error)}"
    if isinstance(error, OSError | nats.errors.Error):
        return _word(error)
    return f"{type(error).__name__}: are the server's address, credentials and tls_ca right?"


def _word(error: BaseException) -> str:
    return str(error) or type(error).__name__
