"""Names, digests, times and keys as they stand on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from scores import jetstream, keys
from scores.names import (
    DeviceName,
    Digest,
    Identifier,
    Lineage,
    ResourceName,
    Text,
    Time,
    format_time,
    parse_time,
)
from tests import strategies


def taken(kind: Any, value: Any) -> bool:
    try:
        TypeAdapter(kind).validate_python(value, strict=True)
    except ValidationError:
        return False
    return True


TABLE: dict[Any, tuple[list[Any], list[Any]]] = {
    DeviceName: (
        ["a", "0", "pi-01", "a--b", "d" * 63],
        ["", "-a", "a-", "A", "a.b", "a_b", "d" * 64, "a\n", "ä", "a b", None, 5],
    ),
    ResourceName: (
        ["a", "_", "@", ":", "\\", "x@a\\x2db.service", "n" * 253, "A.-b"],
        ["", ".", "-", ".a", "-a", "a/b", "a b", "a\0", "n" * 254, "é", "a\n", b"a"],
    ),
    Digest: (
        ["sha256:" + "0a" * 32],
        [
            "",
            "sha256:",
            "sha256:" + "0A" * 32,
            "sha256:" + "0" * 63,
            "sha256:" + "0" * 65,
            "0" * 64,
        ],
    ),
    Lineage: (
        [strategies.LINEAGE],
        [
            "",
            strategies.LINEAGE.upper(),
            strategies.LINEAGE.replace("-", ""),
            strategies.LINEAGE + "\n",
        ],
    ),
    Identifier: (["a", "A.b_c-d", "0" * 128], ["", ".a", "-a", "a/b", "a b", "0" * 129]),
    Text: (["", "é\n", "\U0001f600"], ["\0", "a\0b", "\ud800", "\udfff", 5, b"a"]),
    Time: (
        [
            "2026-11-29T17:00:00.000Z",
            "2026-11-29T17:00:00Z",
            "2024-02-29T00:00:00.123456789Z",
            "0001-01-01T00:00:00Z",
        ],
        [
            "",
            "2026-11-29",
            "2026-11-29T17:00:00",
            "2026-11-29T17:00:00+00:00",
            "2026-11-29t17:00:00z",
            "2026-11-29 17:00:00Z",
            "2025-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-29T25:00:00Z",
            "2026-11-29T17:00:60Z",
            "2026-11-29T17:00:00.Z",
            "2026-11-29T17:00:00.0000000000Z",
            "0000-01-01T00:00:00Z",
            "2026-11-29T17:00:00Z\n",
            "\uff12026-11-29T17:00:00Z",
            "2026-11-29T17:00:00.000000\u0669Z",
        ],
    ),
}


@pytest.mark.parametrize(
    ("kind", "value", "good"),
    [
        (kind, value, good)
        for kind, lists in TABLE.items()
        for good, values in zip((True, False), lists, strict=True)
        for value in values
    ],
)
def test_forms(kind: Any, value: Any, good: bool) -> None:
    assert taken(kind, value) is good


@given(st.datetimes(timezones=st.just(UTC)))
def test_a_formatted_time_is_read_back_to_the_millisecond(moment: datetime) -> None:
    text = format_time(moment)
    assert taken(Time, text)
    assert parse_time(text) == moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@given(strategies.times())
def test_times_of_the_wire_are_utc(text: str) -> None:
    assert taken(Time, text)
    assert parse_time(text).tzinfo is UTC


def test_order_of_texts_is_order_of_times() -> None:
    first = datetime(2026, 11, 29, 23, 59, 59, 999999, UTC)
    assert format_time(first) < format_time(first + timedelta(milliseconds=1))


def test_another_zone_is_told_in_utc() -> None:
    berlin = timezone(timedelta(hours=1))
    assert format_time(datetime(2026, 1, 1, 0, 30, tzinfo=berlin)) == "2025-12-31T23:30:00.000Z"


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("pi-01.web", ("pi-01", "web")),
        ("pi-01", None),
        ("pi-01.", None),
        (".web", None),
        ("a..b", None),
        ("a.b.c", None),
        ("", None),
        (".", None),
    ],
)
def test_keys_of_deployments(text: str, key: tuple[str, str] | None) -> None:
    parsed = keys.parse_deployment_key(text)
    assert parsed == key
    assert parsed is None or str(parsed) == text


@given(strategies.device_names(), strategies.device_names())
def test_a_key_is_read_back(device: str, deployment: str) -> None:
    key = keys.DeploymentKey(device, deployment)
    assert keys.parse_deployment_key(str(key)) == key


def test_the_wires_own_names() -> None:
    assert keys.BUCKETS == (
        "desired-state",
        "actual-state",
        "device-info",
        "device-heartbeat",
        "task-runs",
        "fleet-authority",
        "desired-index",
        "secrets",
    )
    assert keys.HISTORY["desired-state"] == 16
    assert keys.info_key("pi-01") == "info.pi-01"
    assert keys.heartbeat_key("pi-01") == "heartbeat.pi-01"
    assert keys.command_subject("pi-01", "logs") == "device-commands.pi-01.logs"
    assert jetstream.kv_subject("desired-state", "pi-01.web") == "$KV.desired-state.pi-01.web"
    assert jetstream.kv_stream("actual-state") == "KV_actual-state"
    assert keys.COMMANDS == ("ping", "resync", "logs", "challenge", "pause", "resume")
