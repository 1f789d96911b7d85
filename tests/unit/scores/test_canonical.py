"""Canonical bytes are read faster than others, and as those are."""

from __future__ import annotations

import json
import re
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


DEEP = "\n".join(" " * depth + "[" for depth in range(40))


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ('{"a": 1,\n "a": 2}', "DuplicateKey", (2, 2)),
        ('{"a": {"a": 1},\n "b": [{"c": 1, "\\u0063": 2}]}', "DuplicateKey", (2, 17)),
        ('[{"a": "a"}, {"a": ["a", "a"],\n\n"a": 1}, x', "DuplicateKey", (3, 1)),
        ('{"a,{": "{", "b": "\\"b", "b" : 1}', "DuplicateKey", (1, 26)),
        (DEEP, "TooDeep", (33, 33)),
        ('["[[[",\n' + "[" * 40, "TooDeep", (2, 32)),
        ("]" * 5 + "[" * 40, "TooDeep", (1, 38)),
        ('{"a": "NaN",\n  "b": NaN}', "NotFinite", (2, 8)),
        ("[-1,\n-Infinity]", "NotFinite", (2, 1)),
        ('["1e999", 1,\n1e999]', "NumberTooLarge", (2, 1)),
        ("[1, -1.5e+400]", "NumberTooLarge", (1, 5)),
        ("[12,\n " + "9" * 5000 + "]", "NumberTooLarge", (2, 2)),
        ('{"é": "\U0001f600", "é": 1}', "DuplicateKey", (1, 12)),
    ],
)
def test_a_fault_has_its_line_and_column(text: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(NotCanonical) as caught:
        read(text.encode(), 100_000)
    assert caught.value.code == code
    assert str(caught.value).endswith(f" at line {place[0]}, column {place[1]}")


@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            [
                "[",
                "]",
                "{",
                "}",
                ",",
                ":",
                '"a"',
                '"b',
                "1",
                "1e999",
                "NaN",
                "\\",
                "\n",
                " ",
                "9" * 4301,
            ]
        ),
        max_size=40,
    ).map("".join)
)
def test_every_refusal_has_a_place(text: str) -> None:
    said = ""
    try:
        read(text.encode(), 1_000_000)
    except NotCanonical as error:
        said = str(error)
    assert re.search(r"^$| at line \d+, column \d+$", said)
