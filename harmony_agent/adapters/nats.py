"""NATS on the device: one connection, requests with a time-out each, values by CAS, commands, objects.

Reconnects without end, with jitter; a connection over which nothing comes back is given up after `TIMEOUT` or two
pings, whichever is first. Desired state is read in `nats_desired`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import random
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import anyio
import nats.errors
from nats.aio.client import Client, Server
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError, ObjectNotFoundError

from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.topology.control import BucketMissing, Conflict, Entry, Unreachable
from scores.keys import COMMANDS, command_subject, kv_stream, kv_subject

log = logging.getLogger(__name__)

TIMEOUT: Final = 2.0
"""Seconds that one request may take."""
PING_SECONDS: Final = 2
RECONNECT_SECONDS: Final = 1.0
_WRONG_SEQUENCE: Final = (10071, 10164)
_STREAM_NOT_FOUND: Final = 10059
_NO_MESSAGE: Final = 10037
_CHUNK_SECONDS: Final = 10.0


class ApiError(Exception):
    """JetStream's own refusal, by its error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class NatsLink:
    """The connection, and what of `topology.control.ControlPlane` and `topology.Objects` needs no consumer."""

    def __init__(
        self,
        device: str,
        installation: str,
        servers: Sequence[str],
        *,
        credentials: str = "",
        tls_ca: str = "",
    ) -> None:
        """`installation` tells two agents of one device id apart; it names this agent's connection and consumer."""
        self.device = device
        self.name = f"agent-{device}-{hashlib.sha256(installation.encode()).hexdigest()[:8]}"
        self._servers = list(servers)
        self._credentials = credentials
        self._tls_ca = tls_ca
        self._client = Client()
        self.on_connect: Callable[[], None] = _nothing
        self._connection_changed = asyncio.Event()

    def connected(self) -> bool:
        """Whether there is a connection now."""
        return bool(self._client.is_connected)

    async def run(self) -> None:
        """Keep a connection until cancelled."""
        closed = asyncio.Event()
        try:
            while True:
                closed.clear()
                try:
                    await self._connect(closed)
                    log.info("connected to NATS", extra={"server": getattr(self._client.connected_url, "netloc", "")})
                    self._is_connected()
                    await closed.wait()
                except (TimeoutError, OSError, nats.errors.Error, ValueError) as error:
                    log.warning("cannot connect to NATS at %s: %s", ", ".join(self._servers), _word(error))
                with contextlib.suppress(Exception):
                    await self._client.close()
                self._client = Client()
                await anyio.sleep(RECONNECT_SECONDS * random.uniform(0.5, 1.5))  # noqa: S311  # jitter, no secret
        finally:
            with anyio.CancelScope(shield=True), contextlib.suppress(Exception), anyio.fail_after(1):
                await self._client.close()

    async def _connect(self, closed: asyncio.Event) -> None:
        async def lost() -> None:
            log.warning("lost the connection to NATS")

        async def back() -> None:
            log.info("connected to NATS again")
            self._is_connected()

        async def gone() -> None:
            closed.set()

        async def failed(error: Exception) -> None:
            log.debug("NATS: %s", _word(error))

        options: dict[str, Any] = {}
        if self._credentials:
            options["user_credentials"] = self._credentials
        if self._tls_ca:
            options["tls"] = ssl.create_default_context(cafile=self._tls_ca)
        await self._client.connect(
            servers=self._servers,
            name=self.name,
            connect_timeout=3,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=2,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0,  # the handler below waits, with jitter
            reconnect_to_server_handler=_next_server,
            error_cb=failed,
            disconnected_cb=lost,
            reconnected_cb=back,
            closed_cb=gone,
            **options,
        )

    def _is_connected(self) -> None:
        self._connection_changed.set()
        self._connection_changed = asyncio.Event()
        self.on_connect()

    # -- requests

    async def _request(self, subject: str, payload: bytes, headers: dict[str, str] | None = None) -> bytes:
        if not self._client.is_connected:
            raise Unreachable("there is no connection to NATS")
        try:
            reply = await self._client.request(subject, payload, timeout=TIMEOUT, headers=headers)
        except nats.errors.NoRespondersError:
            raise BucketMissing(
                f"nothing answers on {subject.split('.$KV', maxsplit=1)[0]}: is JetStream on, the bucket made?"
            ) from None
        except (TimeoutError, nats.errors.TimeoutError):
            await self._client.force_reconnect()
            raise Unreachable(f"no answer from NATS within {TIMEOUT} s") from None
        except (nats.errors.Error, OSError) as error:
            raise Unreachable(f"NATS: {_word(error)}") from error
        return bytes(reply.data)

    async def api(self, call: str, body: Any) -> dict[str, Any]:
        """Ask JetStream's API. Raises ApiError, BucketMissing, Unreachable."""
        data = await self._request(f"$JS.API.{call}", json.dumps(body).encode() if body is not None else b"")
        answer: dict[str, Any] = json.loads(data)
        if "error" in answer:
            code = int(answer["error"].get("err_code", 0))
            if code == _STREAM_NOT_FOUND:
                raise BucketMissing("the bucket isn't there")
            raise ApiError(code, str(answer["error"].get("description", "")))
        return answer

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The newest value, by way of the stream's leader."""
        try:
            answer = await self.api(f"STREAM.MSG.GET.{kv_stream(bucket)}", {"last_by_subj": kv_subject(bucket, key)})
        except ApiError as error:
            if error.code == _NO_MESSAGE:
                return None
            raise Unreachable(f"NATS refused to read {bucket}: {error}") from error
        return _stored(key, answer["message"])

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        """One publish, acknowledged by the stream."""
        headers = None if revision is None else {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        answer = json.loads(await self._request(kv_subject(bucket, key), data, headers))
        if "error" in answer:
            if int(answer["error"].get("err_code", 0)) in _WRONG_SEQUENCE:
                raise Conflict(f"{bucket} {key} was written by somebody else")
            raise Unreachable(f"NATS refused to write {bucket}: {answer['error'].get('description', '')}")
        return int(answer["seq"])

    async def subscribe(self, subject: str, arrived: Callable[[Msg], Awaitable[None]]) -> Any:
        """A plain subscription; it comes through reconnects. Raises Unreachable."""
        try:
            return await self._client.subscribe(subject, cb=arrived)
        except (nats.errors.Error, OSError) as error:
            raise Unreachable(f"NATS: {_word(error)}") from error

    # -- commands

    async def serve(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Answer commands until cancelled, over every connection there will be."""

        async def arrived(message: Msg) -> None:
            verb = message.subject.rpartition(".")[2]
            if message.reply and verb in COMMANDS:
                reply = await answer(verb, message.data)
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.respond(reply)

        subscribed: Client | None = None
        while True:
            if self.connected() and subscribed is not self._client:
                subscribed = self._client
                with contextlib.suppress(Unreachable):
                    await self.subscribe(command_subject(self.device, "*"), arrived)
            await self._connection_changed.wait()

    # -- objects

    async def fetch(self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Stream an object in its chunks."""
        if not self.connected():
            raise Transient("Unreachable", f"cannot read object {name} of {bucket}: there is no connection to NATS")
        stream = self._client.jetstream(timeout=TIMEOUT)
        try:
            store = await stream.object_store(bucket)
            info = await store.get_info(name)
            if (info.size or 0) > limit:
                raise Terminal("ObjectTooLarge", f"object {name} of {bucket} has {info.size} bytes, at most {limit}")
            if not info.size:
                return
            chunks = await stream.subscribe(f"$O.{bucket}.C.{info.nuid}", ordered_consumer=True)
            try:
                left = info.size
                while left > 0:
                    message = await chunks.next_msg(timeout=_CHUNK_SECONDS)
                    left -= len(message.data)
                    await write(message.data)
            finally:
                await chunks.unsubscribe()
        except (ObjectNotFoundError, NotFoundError):
            raise Transient(
                "ObjectMissing", f"object {name} of {bucket} isn't there: put it there", delay=10, phase="Blocked"
            ) from None
        except (TimeoutError, nats.errors.Error, OSError) as error:
            raise Transient("Unreachable", f"cannot read object {name} of {bucket}: {_word(error)}") from error


def _nothing() -> None:
    """Before anybody wants to know of connections."""


def _next_server(servers: list[Server], _info: dict[str, Any]) -> tuple[Server, float]:
    """The one that failed least, after a wait that grows a little with its failures and differs from agent to agent."""
    server = min(servers, key=lambda server: server.reconnects)
    return server, RECONNECT_SECONDS * random.uniform(0.3, 1.0) if server.reconnects else 0.05  # noqa: S311


def _word(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _stored(key: str, message: dict[str, Any]) -> Entry:
    """A message of STREAM.MSG.GET as an entry; a delete or purge marker has no data."""
    headers = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")
    data = None if "KV-Operation:" in headers else base64.b64decode(message.get("data", ""))
    return Entry(key, data, int(message["seq"]))
