"""Answers of JetStream: refusals, silence, a stored message."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from harmony_agent.topology.control_plane import Entry, Unreachable


class ApiError(Exception):
    """JetStream's own refusal, by its error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


class NoResponders(Unreachable):
    """Nobody listens: a bucket that isn't there, or that is between two leaders."""


class Denied(Unreachable):
    """The server doesn't let these credentials ask that."""


MARKERS: Final = ("KV-Operation", "Nats-Marker-Reason")
"""Headers of a message that says that the key is gone: a client's own marker, and the server's."""


def is_marker(headers: Mapping[str, str] | None) -> bool:
    """Return whether the message says that its key is gone."""
    return any(name in (headers or ()) for name in MARKERS)


def stored(prefix: str, message: dict[str, Any]) -> Entry:
    """A message of STREAM.MSG.GET as an entry, its key without `prefix`; a delete or purge marker
    has no data.
    """
    headers = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace")
    gone = any(f"{name}:" in headers for name in MARKERS)
    data = None if gone else base64.b64decode(message.get("data", ""))
    return Entry(str(message["subject"]).removeprefix(prefix), data, int(message["seq"]))
