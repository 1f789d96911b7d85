"""JetStream's API as a device asks it: its calls and their refusals. Knows no bucket's meaning."""

from __future__ import annotations

import json
from typing import Any

from nats.aio.msg import Msg

from harmony_agent.adapters.nats.connection import TIMEOUT, NatsConnection, NoResponders
from harmony_agent.topology.control_plane import BucketMissing, Unreachable
from scores.jetstream import NO_STREAM, ApiError, answered


class Denied(Unreachable):
    """The server doesn't let these credentials ask that."""


class Api:
    """Calls over `connection`, below `prefix`."""

    def __init__(self, connection: NatsConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    async def call(self, call: str, body: Any, seconds: float = TIMEOUT) -> dict[str, Any]:
        """Ask by JSON. Raises ApiError, BucketMissing, Unreachable (of it Denied, NoResponders)."""
        payload = json.dumps(body).encode() if body is not None else b""
        try:
            return answered((await self.ask(call, payload, seconds)).data)
        except ApiError as error:
            if error.code == NO_STREAM:
                raise BucketMissing("the bucket isn't there") from None
            raise

    async def ask(self, call: str, payload: bytes = b"", seconds: float = TIMEOUT) -> Msg:
        """Ask, and return the answer as it is. Raises Unreachable.

        The server doesn't answer a denied request. It sends a refusal beside it, and the time of
        the request runs out.
        """
        subject = f"{self._prefix}.{call}"
        try:
            return await self._connection.ask(subject, payload, seconds=seconds)
        except NoResponders:
            raise
        except Unreachable as error:
            if self._connection.was_denied(f'"{subject}"'):
                raise Denied(f"the server denies {subject} to these credentials") from error
            raise
