"""JetStream's API as a device asks it: its JSON calls, and what they refuse. Knows of no bucket's
meaning.
"""

from __future__ import annotations

import json
from typing import Any, Final

from nats.aio.msg import Msg

from harmony_agent.adapters.nats.answers import ApiError, Denied, NoResponders
from harmony_agent.adapters.nats.connection import TIMEOUT, NatsConnection
from harmony_agent.topology.control_plane import BucketMissing, Unreachable

_STREAM_NOT_FOUND: Final = 10059


class Api:
    """Calls over `connection`, below `prefix`."""

    def __init__(self, connection: NatsConnection, prefix: str) -> None:
        self._connection = connection
        self._prefix = prefix

    async def call(self, call: str, body: Any, seconds: float = TIMEOUT) -> dict[str, Any]:
        """Ask by JSON. Raises ApiError, BucketMissing, Unreachable (of it Denied and Silent)."""
        payload = json.dumps(body).encode() if body is not None else b""
        answer: dict[str, Any] = json.loads((await self.ask(call, payload, seconds)).data)
        if "error" in answer:
            code = int(answer["error"].get("err_code", 0))
            if code == _STREAM_NOT_FOUND:
                raise BucketMissing("the bucket isn't there")
            raise ApiError(code, str(answer["error"].get("description", "")))
        return answer

    async def ask(self, call: str, payload: bytes = b"", seconds: float = TIMEOUT) -> Msg:
        """Ask, and take the answer as it is. Raises Unreachable.

        The server answers nothing to what it denies: its refusal comes beside it, and the time runs
        out.
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
