"""JetStream's wire by table: what a server sends, and what is made of it."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest

from scores.jetstream import (
    ApiError,
    Stored,
    answered,
    delivered,
    direct,
    expecting,
    is_stored,
    object_chunks,
    object_meta,
    object_stream,
    purging,
    stored,
)

SUBJECT = "$KV.desired-state.pi-01.web"
WHEN = datetime(2026, 7, 1, 12, 0, 0, 123456, UTC)
NANOSECONDS = f"{int(datetime(2026, 7, 1, 12, tzinfo=UTC).timestamp())}123456789"
HEADERS: list[tuple[dict[str, str], bool]] = [
    ({}, False),
    ({"KV-Operation": "DEL"}, True),
    ({"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, True),
    ({"Nats-Marker-Reason": "MaxAge", "Nats-TTL": "2s"}, True),
    ({"Nats-Marker-Reason": "Purge"}, True),
    ({"X": "KV-Operation: DEL"}, False),
    ({"X-KV-Operation": "DEL"}, False),
    ({"Status": "x", "Nats-Expected-Last-Subject-Sequence": "3"}, False),
]


def message(headers: dict[str, str], **more: Any) -> dict[str, Any]:
    lines = ["NATS/1.0", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    coded = base64.b64encode("\r\n".join(lines).encode()).decode()
    data = base64.b64encode(b"value").decode()
    found = {"subject": SUBJECT, "seq": 7, "data": data, "time": "2026-07-01T12:00:00.123456789Z"}
    return {**found, **({"hdrs": coded} if headers else {}), **more}


@pytest.mark.parametrize(("headers", "gone"), HEADERS, ids=str)
def test_every_way_to_read_tells_the_same_markers(headers: dict[str, str], gone: bool) -> None:
    value = None if gone else b"value"
    assert stored(message(headers)) == Stored(SUBJECT, value, 7, WHEN)
    place = {"Nats-Subject": SUBJECT, "Nats-Sequence": "7"}
    assert direct({**headers, **place}, b"value") == Stored(SUBJECT, value, 7)
    reply = f"$JS.ACK.KV_desired-state.c.1.7.3.{NANOSECONDS}.5"
    assert delivered(SUBJECT, reply, headers, b"value") == (Stored(SUBJECT, value, 7, WHEN), 5)


def test_an_empty_value_is_no_marker() -> None:
    bare = message({})
    del bare["data"], bare["time"]
    assert stored(bare) == Stored(SUBJECT, b"", 7)


@pytest.mark.parametrize(
    "reply",
    [
        f"$JS.ACK.s.c.1.7.3.{NANOSECONDS}.5",
        f"$JS.ACK._.hash.s.c.1.7.3.{NANOSECONDS}.5",
        f"$JS.ACK.domain.hash.s.c.1.7.3.{NANOSECONDS}.5.token",
    ],
)
def test_both_forms_of_a_reply_subject(reply: str) -> None:
    assert delivered(SUBJECT, reply, {}, b"") == (Stored(SUBJECT, b"", 7, WHEN), 5)


@pytest.mark.parametrize("reply", ["", "_INBOX.x", "$JS.ACKED.s.c.1.7.3.0.5"])
def test_a_status_is_no_message(reply: str) -> None:
    assert delivered("_INBOX.x", reply, {"Status": "404"}, b"") is None


def test_a_direct_read_tells_nothing_from_a_refusal() -> None:
    assert direct({"Status": "404", "Description": "Message Not Found"}, b"") is None
    for headers in ({"Status": "408", "Description": "Bad Request"}, {"Status": "503"}, {}):
        with pytest.raises(ApiError) as caught:
            direct(headers, b"")
        assert str(caught.value) == headers.get("Description", "")


@pytest.mark.parametrize(
    ("data", "code", "words"),
    [
        (b'{"error":{"code":404,"err_code":10059,"description":"no stream"}}', 10059, "no stream"),
        (b'{"error":{"code":503}}', 0, ""),
    ],
)
def test_a_refusal_has_its_code(data: bytes, code: int, words: str) -> None:
    with pytest.raises(ApiError) as caught:
        answered(data)
    assert (caught.value.code, str(caught.value)) == (code, words)


def test_an_answer_is_its_json() -> None:
    assert answered(b'{"stream":"KV_desired-state","seq":9}') == {
        "stream": "KV_desired-state",
        "seq": 9,
    }


def test_headers_of_writes() -> None:
    assert expecting(0) == {"Nats-Expected-Last-Subject-Sequence": "0"}
    assert purging(4) == {
        "KV-Operation": "PURGE",
        "Nats-Rollup": "sub",
        "Nats-Expected-Last-Subject-Sequence": "4",
    }


def test_subjects_of_objects() -> None:
    assert object_stream("files") == "OBJ_files"
    assert object_meta("files", "a/ü?") == "$O.files.M.YS_DvD8="
    assert object_chunks("files", "NUID") == "$O.files.C.NUID"


def test_only_the_stream_itself_names_a_sequence() -> None:
    assert is_stored({"Nats-Sequence": "1"})
    assert not is_stored({"Nats-Subject": SUBJECT})
    assert not is_stored(None)
