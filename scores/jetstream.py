"""JetStream's wire, as the agent and the operator's side speak it: subjects, headers, answers, error
codes. Pure.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from scores.names import parse_time

API: Final = "$JS.API"
"""Prefix of JetStream's own calls."""

NO_CONSUMER: Final = 10014
NO_MESSAGE: Final = 10037
NO_STREAM: Final = 10059
STREAM_EXISTS: Final = 10058
WRONG_SEQUENCE: Final = (10071, 10164)
"""A compare-and-set lost: somebody else wrote."""
NO_ROOM: Final = (10047, 10005, 10023)
"""The server, or each that could hold the stream, has less than the stream would be promised."""

_MARKERS: Final = ("KV-Operation", "Nats-Marker-Reason")
"""Headers of a message that says that its key is gone: a client's own marker, and the server's."""
_EXPECTED: Final = "Nats-Expected-Last-Subject-Sequence"
NO_SUCH_STREAM: Final = "KV_none-of-ours"
"""A name that no bucket of ours makes."""
_NOTE: Final = "Harmony-Roster"
_ACK: Final = "$JS.ACK."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ApiError(Exception):
    """A refusal by JetStream, with its error code."""

    def __init__(self, code: int, description: str) -> None:
        super().__init__(description)
        self.code = code


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored message.

    `value` is None for a marker, which says that the key is gone. `created` is JetStream's own
    time, None where the answer has none. `note` is what its writer noted beside the value: see
    `noting`.
    """

    subject: str
    value: bytes | None
    sequence: int
    created: datetime | None = None
    note: str = ""


# -- subjects and streams


def kv_subject(bucket: str, key: str) -> str:
    """The subject on which JetStream stores `key` of `bucket`."""
    return f"$KV.{bucket}.{key}"


def kv_stream(bucket: str) -> str:
    """The stream behind `bucket`."""
    return f"KV_{bucket}"


def object_stream(bucket: str) -> str:
    """The stream behind an object store."""
    return f"OBJ_{bucket}"


def object_meta(bucket: str, name: str) -> str:
    """The subject of an object's description."""
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def object_chunks(bucket: str, nuid: str) -> str:
    """The subject of an object's chunks."""
    return f"$O.{bucket}.C.{nuid}"


# -- headers of a write


def expecting(revision: int) -> dict[str, str]:
    """Headers of a compare-and-set. At revision 0 the key must not exist."""
    return {_EXPECTED: str(revision)}


def noting(note: str) -> dict[str, str]:
    """Headers of a write by a roster. They are no part of the value, and devices don't read them."""
    return {_NOTE: note} if note else {}


def deleting(last: int) -> dict[str, str]:
    """Headers of an empty message that deletes a key, if `last` is the newest of the whole stream.

    It rolls nothing up and names no subject, so it is safe for a key that reads as a wildcard.
    """
    return {"KV-Operation": "DEL", "Nats-Expected-Last-Sequence": str(last)}


def meant_for(stream: str) -> dict[str, str]:
    """Headers of a message that any other stream refuses."""
    return {"Nats-Expected-Stream": stream}


def purging(revision: int) -> dict[str, str]:
    """Headers of an empty message that purges a key with its history, if `revision` is its last."""
    return {"KV-Operation": "PURGE", "Nats-Rollup": "sub", **expecting(revision)}


# -- answers


def answered(data: bytes) -> dict[str, Any]:
    """Decode the JSON answer of a call or of a write. Raises ApiError if it is a refusal."""
    answer: dict[str, Any] = json.loads(data)
    if "error" in answer:
        error = answer["error"]
        raise ApiError(int(error.get("err_code", 0)), str(error.get("description", "")))
    return answer


def stored(message: Mapping[str, Any]) -> Stored:
    """Decode the message of an answer to STREAM.MSG.GET."""
    lines = base64.b64decode(message.get("hdrs", "")).decode("utf-8", "replace").split("\r\n")
    headers = {
        name: value.strip()
        for name, colon, value in (line.partition(":") for line in lines)
        if colon
    }
    return Stored(
        str(message["subject"]),
        _value(headers, base64.b64decode(message.get("data", ""))),
        int(message["seq"]),
        parse_time(message["time"]) if "time" in message else None,
        headers.get(_NOTE, ""),
    )


def direct(headers: Mapping[str, str], data: bytes) -> Stored | None:
    """Decode an answer to DIRECT.GET. None if there is no message. Raises ApiError if it is a
    refusal.
    """
    if "Nats-Sequence" in headers:
        subject, sequence = headers["Nats-Subject"], int(headers["Nats-Sequence"])
        return Stored(subject, _value(headers, data), sequence)
    if headers.get("Status") == "404":
        return None
    raise ApiError(0, headers.get("Description", ""))


def delivered(
    subject: str, reply: str, headers: Mapping[str, str], data: bytes
) -> tuple[Stored, int] | None:
    """Decode a message of a pull consumer, and the count of those behind it. None if it is a
    status.

    The reply subject has one of two forms:
    ``$JS.ACK[.<domain>.<account>].<stream>.<consumer>.<tries>.<sequence>.<n>.<nanoseconds>.<pending>…``
    """
    if not reply.startswith(_ACK):
        return None
    tokens = reply.split(".")
    fields = tokens[5:] if len(tokens) == 9 else tokens[7:]
    created = _EPOCH + timedelta(microseconds=int(fields[2]) // 1000)
    note = headers.get(_NOTE, "")
    return Stored(subject, _value(headers, data), int(fields[0]), created, note), int(fields[3])


def is_stored(headers: Mapping[str, str] | None) -> bool:
    """Return whether a message comes from the stream itself, after it was stored."""
    return "Nats-Sequence" in (headers or ())


def _value(headers: Mapping[str, str], data: bytes) -> bytes | None:
    return None if any(name in headers for name in _MARKERS) else bytes(data)
