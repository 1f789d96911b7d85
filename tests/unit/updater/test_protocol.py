"""Requests and answers: what is taken, what is refused and with which code, and that they fit into
a line.
"""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harmony_updater.journal import Record
from harmony_updater.protocol import (
    LINE_LIMIT,
    Answer,
    Ask,
    Capabilities,
    Refused,
    Status,
    decode,
    encode,
)
from scores.status import UpgradeDetail

REQUEST = {
    "attemptId": "a-1",
    "runUid": "r-1",
    "deviceId": "pi-01",
    "expiresAt": "2026-11-29T18:00:00Z",
}


def asked(**changes: Any) -> bytes:
    line = {"v": 1, "op": "AptFullUpgradeV1", "request": REQUEST} | changes
    return json.dumps({key: value for key, value in line.items() if value is not None}).encode()


def code(line: bytes) -> str:
    with pytest.raises(Refused) as refused:
        decode(line)
    error = refused.value.answer.error
    assert error
    assert len(json.dumps(error)) < 2_000
    return error["code"]


def test_the_three_requests_of_the_contract_are_taken() -> None:
    assert decode(b'{"v":1,"op":"capabilities"}\n').op == "capabilities"
    assert decode(b'{"v":1,"op":"status","attemptId":"a-1"}').attemptId == "a-1"
    request = decode(asked()).request
    assert request
    assert request.model_dump() == REQUEST | {"expiresAt": "2026-11-29T18:00:00.000Z"}


@pytest.mark.parametrize(
    "line", [asked(v=2), asked(v=0), asked(op="AptFullUpgradeV2"), asked(op="shell")]
)
def test_another_version_or_operation_is_unsupported(line: bytes) -> None:
    assert code(line) == "unsupported"


@pytest.mark.parametrize(
    "line",
    [
        b"", b"\n", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b"\0" * 100, b"[" * 60_000,
        asked(v=None), asked(v=True), asked(v=1.0), asked(v="1"), asked(op=None),
        asked(more=1), asked(attemptId="a-1"), asked(request=None), asked(request=[]), asked(request="x"),
        asked(op="status"), asked(op="capabilities"),
        asked(request=REQUEST | {"package": "x"}), asked(request={k: v for k, v in REQUEST.items() if k != "runUid"}),
        *(asked(request=REQUEST | {"attemptId": bad}) for bad in
          ("", ".a", "-a", "a/b", "../a", "a\n", "a b", "a\0", "é", "a" * 129, 1, None, ["a"], True)),
        *(asked(request=REQUEST | {"deviceId": bad}) for bad in ("", "Pi", "-pi", "pi-", "pi_1", "p" * 64, 1)),
        *(asked(request=REQUEST | {"expiresAt": bad}) for bad in (
            "", "2026-11-29", "2026-11-29T18:00:00", "2026-11-29T18:00:00+00:00", "2026-13-29T18:00:00Z",
            "2026-11-29T25:00:00Z", "2026-11-29 18:00:00Z", "2026-11-29T18:00:00Z ", 1796061600, None)),
        b'{"v":1,"op":"status","attemptId":"\\ud800"}',
    ],
)  # fmt: skip
def test_what_is_no_request_is_a_bad_request(line: bytes) -> None:
    assert code(line) == "bad-request"


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_else_than_be_refused(line: bytes) -> None:
    assert code(line) in {"bad-request", "unsupported"}


def test_a_refusal_names_the_field_and_not_the_value() -> None:
    with pytest.raises(Refused) as refused:
        decode(asked(request=REQUEST | {"runUid": "a secret"}))
    text = encode(refused.value.answer).decode()
    assert "runUid" in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("one", "other"), [("18:00:00Z", "18:00:00.000Z"), ("18:00:00.5Z", "18:00:00.500000Z")]
)
def test_equal_times_are_equal_requests(one: str, other: str) -> None:
    assert decode(asked(request=REQUEST | {"expiresAt": f"2026-11-29T{one}"})) == decode(
        asked(request=REQUEST | {"expiresAt": f"2026-11-29T{other}"})
    )


def test_an_answer_tells_of_a_record_what_the_contract_has_and_no_more() -> None:
    asked_for = REQUEST | {"phase": "preflight", "startedAt": "2026-11-29T17:00:00Z"}
    record = Record.model_validate(asked_for | {"before": {"a": "1"}, "rebootsAsked": 2})
    line = encode(Answer(ok=True, status=record))
    assert line.count(b"\n") == 1
    answer = json.loads(line)
    assert set(answer) == {"v", "ok", "status"}
    assert set(answer["status"]) == {
        "attemptId", "runUid", "deviceId", "phase", "reason", "message", "startedAt", "updatedAt",
        "bootIdBefore", "bootIdAfter", "result",
    }  # fmt: skip
    UpgradeDetail.model_validate(answer["status"])  # the resource's typed status takes it as it is
    assert isinstance(Answer.model_validate_json(line).status, Status)


def test_a_refusal_and_the_capabilities_read_as_the_contract_writes_them() -> None:
    assert json.loads(encode(Refused("expired", "why").answer)) == {
        "v": 1, "ok": False, "error": {"code": "expired", "message": "why"},
    }  # fmt: skip
    assert json.loads(encode(Answer(ok=True, status=Capabilities()))) == {
        "v": 1, "ok": True, "status": {"protocol": 1, "operations": ["AptFullUpgradeV1"]},
    }  # fmt: skip
    assert json.loads(encode(Ask(v=1, op="status", attemptId="a"))) == {
        "v": 1,
        "op": "status",
        "attemptId": "a",
    }


def test_an_answer_of_another_version_is_not_taken() -> None:
    with pytest.raises(ValidationError):
        Answer.model_validate_json(b'{"v":2,"ok":true,"status":{"protocol":1,"operations":[]}}')


def test_a_line_is_64_kib() -> None:
    assert LINE_LIMIT == 65_536
