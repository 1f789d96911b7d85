"""Canonical bytes are read faster than others, and as those are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scores.canonical import NotCanonical, canonical, read

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def outcome(data: bytes) -> str:
    try:
        return repr(read(data, 100_000))
    except NotCanonical as error:
        return error.code


def same(data: bytes) -> None:
    """As with a space in front, which no canonical bytes have."""
    assert outcome(data) == outcome(b" " + data)


@settings(deadline=None, max_examples=150)
@given(
    VALUES,
    st.booleans(),
    st.integers(0, 30),
    st.sampled_from([b"", b",", b'"', b"\\", b"\xff", b"9", b"NaN"]),
)
def test_a_value_and_what_is_nearly_one(value: Any, escaped: bool, at: int, put: bytes) -> None:
    data = json.dumps(value, ensure_ascii=escaped, separators=(",", ":"), sort_keys=True).encode(
        errors="surrogatepass"
    )
    same(data[:at] + put + data[at:])


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"a":1,"b":{"c":1,"c":1}}',
        b"1e999",
        b"NaN",
        b"-0",
        b"-0.0",
        b"1e22",
        b"9" * 4300,
        b"9" * 4301,
        b'"\\ud800"',
        b'"\\u0000"',
        b"\xef\xbb\xbf1",
        b"[" * 32 + b"]" * 32,
        b"[" * 33 + b"]" * 33,
        b'"' + b"[" * 40 + b'"',
        b"",
    ],
)
def test_what_is_odd(data: bytes) -> None:
    same(data)


@given(VALUES)
@example({"é": "\u2028"})
def test_what_is_written_is_read(value: Any) -> None:
    try:
        data = canonical(value)
    except ValueError:
        return
    assert repr(read(data, 100_000)) == repr(json.loads(data))
