"""Answers what an operator asks of this device: ping, resync, logs, and verbs that are handed in. No
verb runs a command.

A reply is ``{"ok":true, …}`` or ``{"ok":false,"error":{"code","message"}}``.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import fields
from typing import Any, Final

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Key
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance

MAX_LINES: Final = 1000
MAX_BYTES: Final = 512 * 1024
DEFAULT_LINES: Final = 100
MAX_SECONDS: Final = 10 * 365 * 86_400


class BadRequest(Exception):
    """The request isn't of the verb's form."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Commands:
    """The verbs."""

    def __init__(
        self,
        state: DeviceState,
        kinds: Mapping[str, KindInstance],
        hello: Mapping[str, str],
        resync: Callable[[], None],
        more: Mapping[str, Callable[[bytes], Awaitable[dict[str, Any]]]] | None = None,
    ) -> None:
        """`hello` is what ping answers; `resync` makes everything be read and looked at again.

        `more` are verbs by name. They raise BadRequest or ResourceError.
        """
        self._state = state
        self._kinds = kinds
        self._hello = hello
        self._resync = resync
        self._more = more or {}

    async def answer(self, verb: str, request: bytes) -> bytes:
        """One reply, as JSON bytes."""
        try:
            reply = {"ok": True, **await self._dispatch(verb, request)}
        except (BadRequest, ResourceError) as error:
            code = error.code if isinstance(error, BadRequest) else error.reason
            reply = {"ok": False, "error": {"code": code, "message": str(error)}}
        return json.dumps(reply).encode()

    async def _dispatch(self, verb: str, request: bytes) -> dict[str, Any]:
        if verb == "ping":
            return dict(self._hello)
        if verb == "resync":
            self._resync()
            return {}
        if verb == "logs":
            return {"lines": await self._logs(request)}
        if verb in self._more:
            return await self._more[verb](request)
        there = ", ".join(["ping", "resync", "logs", *self._more])
        raise BadRequest("unsupported", f"no command {verb[:32]!r}: there are {there}")

    async def _logs(self, request: bytes) -> list[str]:
        asked = _logs_request(request)
        key = Key.parse(asked.resource)
        reconciler = self._kinds.get(key.kind)
        if reconciler is None or (
            key not in self._state.desired and key not in self._state.records
        ):
            raise BadRequest("unknown-resource", "this device has no such resource")
        found = await reconciler.logs(key.name, asked.lines, asked.since_seconds)
        told = [f"{line.time} {line.text}" if asked.timestamps else line.text for line in found]
        return _bounded(told[-asked.lines :])


@frozen()
class _LogsRequest:
    """The request for logs. A field that an older command doesn't send has its default."""

    resource: str
    lines: int = DEFAULT_LINES
    since_seconds: float | None = None
    """Only lines of the last so many seconds, by this device's own clock."""
    timestamps: bool = False
    """Each line begins with its time, in UTC, and a space."""


_FIELDS: Final = frozenset(field.name for field in fields(_LogsRequest))


def _logs_request(request: bytes) -> _LogsRequest:
    try:
        value = json.loads(request[: 64 * 1024])
    except (ValueError, RecursionError):
        raise BadRequest("bad-request", "the request is no JSON") from None
    if not isinstance(value, dict) or value.keys() - _FIELDS:
        raise BadRequest(
            "bad-request", 'the request is {"resource": "<Kind>/<name>", "lines": 100}'
        )
    resource, lines = value.get("resource"), value.get("lines", DEFAULT_LINES)
    if not isinstance(resource, str) or not isinstance(lines, int) or isinstance(lines, bool):
        raise BadRequest("bad-request", "resource is text, lines a whole number")
    if not 1 <= lines <= MAX_LINES:
        raise BadRequest("bad-request", f"lines is from 1 to {MAX_LINES}")
    since, timestamps = value.get("since_seconds"), value.get("timestamps", False)
    if not isinstance(timestamps, bool) or isinstance(since, bool):
        raise BadRequest("bad-request", "timestamps is true or false, since_seconds a number")
    if since is not None and not (isinstance(since, int | float) and 0 < since <= MAX_SECONDS):
        raise BadRequest("bad-request", f"since_seconds is above 0, and at most {MAX_SECONDS}")
    return _LogsRequest(resource, lines, since, timestamps)


def _bounded(lines: list[str]) -> list[str]:
    """Take the newest lines whose JSON fits, and cut each line that is too long."""
    found: list[str] = []
    left = MAX_BYTES - 1024
    for line in reversed(lines):
        text = line[: 16 * 1024]
        left -= len(json.dumps(text)) + 2
        if left < 0:
            break
        found.append(text)
    return found[::-1]
