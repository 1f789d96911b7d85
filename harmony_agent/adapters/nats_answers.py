"""What JetStream answers: its refusals, its silence, a stored message."""

from __future__ import annotations

import base64
from typing import Any

from harmony_agent.topology.control import Entry, Unreachable


class ApiError(Exception):
    """JetStream's own refusal, by its error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class Silent(Unreachable):
    """Nobody listens: a bucket that isn't there, or that is between two leaders."""


def stored(key: str, message: dict[str, Any]) -> Entry:
    """A message of STREAM.MSG.GET as an entry; a delete or purge marker has no data."""
    headers = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")
    data = None if "KV-Operation:" in headers else base64.b64decode(message.get("data", ""))
    return Entry(key, data, int(message["seq"]))
