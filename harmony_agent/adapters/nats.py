"""NATS on the device: JetStream's API, values by CAS, commands, objects.

How the connection is kept stands in `nats_connection`, how desired state is read in `nats_desired`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import nats.errors
from nats.aio.msg import Msg

from harmony_agent.adapters.nats_answers import ApiError, Silent, stored
from harmony_agent.adapters.nats_connection import TIMEOUT, NatsConnection
from harmony_agent.adapters.nats_gate import Gate, is_device
from harmony_agent.adapters.nats_objects import fetch
from harmony_agent.core.errors import Transient
from harmony_agent.topology.control import BucketMissing, Conflict, Entry, Unreachable
from scores.keys import COMMANDS, DEVICE_API, command_subject, device_inbox, kv_stream, kv_subject

_WRONG_SEQUENCE: Final = (10071, 10164)
_STREAM_NOT_FOUND: Final = 10059
_NO_MESSAGE: Final = 10037


class NatsLink(NatsConnection):
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
        name = f"agent-{device}-{hashlib.sha256(installation.encode()).hexdigest()[:8]}"
        own = is_device(credentials)
        inbox_prefix = device_inbox(device) if own else ""
        super().__init__(name, servers, credentials=credentials, tls_ca=tls_ca, inbox_prefix=inbox_prefix)
        self.gate: Gate | None = Gate(self) if own else None
        """how to ask with a device's own credentials; None: with an account's full rights"""

    # -- values

    async def api(self, call: str, body: Any, seconds: float = TIMEOUT) -> dict[str, Any]:
        """Ask JetStream's API. Raises ApiError, BucketMissing, Unreachable."""
        payload = json.dumps(body).encode() if body is not None else b""
        prefix = DEVICE_API if self.gate else "$JS.API"
        answer: dict[str, Any] = json.loads((await self.ask(f"{prefix}.{call}", payload, seconds=seconds)).data)
        if "error" in answer:
            code = int(answer["error"].get("err_code", 0))
            if code == _STREAM_NOT_FOUND:
                raise BucketMissing("the bucket isn't there")
            raise ApiError(code, str(answer["error"].get("description", "")))
        return answer

    async def get(self, bucket: str, key: str) -> Entry | None:
        """The newest value, by way of the stream's leader."""
        if self.gate:
            return await self.gate.get(bucket, key)
        return await self._last(bucket, key)

    async def newest(self, bucket: str, keys: str) -> Entry | None:
        """The last entry of all that match."""
        return await (self.gate.newest(bucket, keys) if self.gate else self._last(bucket, keys))

    async def _last(self, bucket: str, key: str) -> Entry | None:
        try:
            answer = await self.api(f"STREAM.MSG.GET.{kv_stream(bucket)}", {"last_by_subj": kv_subject(bucket, key)})
        except ApiError as error:
            if error.code == _NO_MESSAGE:
                return None
            raise Unreachable(f"NATS refused to read {bucket}: {error}") from error
        return stored(key, answer["message"])

    async def put(self, bucket: str, key: str, data: bytes, revision: int | None) -> int:
        """One publish, acknowledged by the stream."""
        headers = None if revision is None else {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        try:
            answer = json.loads((await self.ask(kv_subject(bucket, key), data, headers)).data)
        except Silent:
            await self.birth(bucket)  # raises BucketMissing where that is why
            raise
        if "error" in answer:
            if int(answer["error"].get("err_code", 0)) in _WRONG_SEQUENCE:
                raise Conflict(f"{bucket} {key} was written by somebody else")
            raise Unreachable(f"NATS refused to write {bucket}: {answer['error'].get('description', '')}")
        if self.gate:
            self.gate.written(bucket, key, int(answer["seq"]))
        return int(answer["seq"])

    async def birth(self, bucket: str) -> str:
        """When the bucket was made, as its server writes it."""
        if self.gate:
            return await self.gate.birth(bucket)
        try:
            return str((await self.api(f"STREAM.INFO.{kv_stream(bucket)}", None))["created"])
        except ApiError as error:
            raise Unreachable(f"NATS refused to look at {bucket}: {error}") from error

    # -- commands

    async def serve(self, answer: Callable[[str, bytes], Awaitable[bytes]]) -> None:
        """Answer commands until cancelled, over every connection there will be.

        Each verb by itself: logs that podman doesn't give up hold up no ping.
        """

        async def arrived(message: Msg) -> None:
            if message.reply:
                verb = message.subject.rpartition(".")[2]
                reply = await answer(verb, message.data)
                with contextlib.suppress(nats.errors.Error, OSError):
                    await message.respond(reply)

        while True:
            changed = self._connection_changed
            if self.connected():
                with contextlib.suppress(Unreachable):
                    for verb in COMMANDS:
                        await self.subscribe(command_subject(self.device, verb), arrived)
            await changed.wait()

    # -- objects

    async def fetch(self, bucket: str, name: str, limit: int, write: Callable[[bytes], Awaitable[None]]) -> None:
        """Stream an object in its chunks."""
        if not self.connected():
            raise Transient("Unreachable", f"cannot read object {name} of {bucket}: there is no connection to NATS")
        if self.gate:
            await self.gate.fetch(bucket, name, limit, write)
            return
        await fetch(self._client.jetstream(timeout=TIMEOUT), bucket, name, limit, write)
