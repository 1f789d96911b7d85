"""The quick reader of YAML says the same as the other one, or nothing. Hypothesis, on documents and
on their debris.
"""

from __future__ import annotations

import random
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml.error import YAMLError

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests.read_yaml import UNUSUAL, _reader, quick, read_yaml

DEBRIS: Final = (
    "a", "b: ", "- ", "\n", "\n  ", "\n    ", "'x'", '"y"', ": ", ":", " #c", "#", "[", "]", "{", "}", ", ", ",", "|\n",
    "|-\n", "|+\n", ">\n", ">-\n", ">2\n", "|1\n", "1", "01", "0o7", "0x1f", "1.5", "-1", "+1", "1e3", "1_0", ".5",
    "5.", "true", "True", "no", "~", "null", "? ", "!t ", "&a ", "*a", "<<: ", "=", "''", '"\\n"', '"\\/"',
    "é", "%", "@", "-", "--", "---", "...", "key: value", "- a\n", "k:\n", "2026-11-29", "12:30:00", "a b", "\n\n", " ",
    "http://x:80/y", "'it''s'", '"a\\\n  b"', "- - ", "x: {a: 1}", "[a: b]", '{"a":1}', "{a:1}", "[,]", "0 3 * * 0",
    "\\", "\t", "\r\n", "\x85", "\u2028", "\ufeff", "*", "|", ">", "1234567890123456789", "-0", ".inf", "0b1",
)  # fmt: skip

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(DEBRIS),
    st.text(max_size=12),
)
KEYS = st.one_of(
    st.sampled_from(["name", "class", "labels", "a b", "true", "1", "no", "~"]), st.text(max_size=8)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)


def agrees(text: str) -> bool:
    """Whether the quick reader had an opinion; the other one then has the same."""
    value = quick(text)
    if value is UNUSUAL:
        return False
    try:
        there: Any = list(_reader().load_all(text))
    except YAMLError as error:
        there = error
    assert repr(there) == repr([value]), text
    return True


@given(st.lists(st.sampled_from(DEBRIS), max_size=12).map("".join))
@settings(max_examples=400, deadline=None)
def test_debris(text: str) -> None:
    agrees(text)


@given(VALUES, st.booleans(), st.sampled_from([None, "'", '"', "|", ">"]), st.integers(2, 6))
@settings(max_examples=150, deadline=None)
def test_documents(value: Any, flow: bool, style: str, indent: int) -> None:
    text = yaml.safe_dump(
        value, default_flow_style=flow, default_style=style, indent=indent, allow_unicode=True
    )
    agrees(text)


@given(st.integers())
@settings(max_examples=40, deadline=None)
def test_lines_in_any_place(seed: int) -> None:
    chosen = random.Random(seed)
    lines = [
        "  " * chosen.randint(0, 3) + "".join(chosen.choices(DEBRIS, k=chosen.randint(1, 4)))
        for _ in range(5)
    ]
    agrees("\n".join(lines))


PLAIN = """\
# the fleet
version: 1
devices:
  - name: pi-01  # under the desk
    class: 'web'
    labels: {site: home, rack: "2"}
    variables: {port: 8080, on: true, share: 0.5, none: ~}
deployments:
- name: web
  scores:
  - content: |
      one
        two

    mode: "0644"
    after: [File/a, File/b]
"""


def test_a_usual_roster_is_read_quickly() -> None:
    assert agrees(PLAIN)
    assert quick(PLAIN)["devices"][0]["variables"] == {
        "port": 8080,
        "on": True,
        "share": 0.5,
        "none": None,
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a: 1\n---\nb: 2\n",
        "%YAML 1.1\n---\na: no\n",
        "a: 1\na: 2\n",
        "a: &x 1\nb: *x\n",
        "a: !!str 1\n",
        "<<: {a: 1}\n",
        "a: 0o17\n",
        "a: 1_000\n",
        "a: 1e400\n",
        "a: +1\n",
        "1: a\n",
        "a: |1\n  x\n",
        "a: [\n",
        "a: x\u2028y\n",
        "[" * 120,
    ],
)
def test_what_is_unusual_is_left_to_the_other(text: str) -> None:
    assert quick(text) is UNUSUAL


def test_without_the_c_library_all_is_left_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert quick(PLAIN) is UNUSUAL
    assert read_yaml(PLAIN.encode(), "roster.yaml")[0]["version"] == 1


def block(depth: int) -> str:
    return "".join("  " * n + f"a{n}:\n" for n in range(depth)) + "  " * depth + "x\n"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (block(40), "at line 33, column 65"),
        ("a: 1\nb: " + "[" * 40 + "]" * 40, "at line 2, column 35"),
        ("---\na: 1\n---\n" + block(40), "at line 36, column 65"),
        (
            "\n".join(["a0: &a0 [1]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 40))]),
            "through an alias",
        ),
    ],
)
def test_too_deep_a_document_has_its_place(text: str, place: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(text.encode(), "web.yaml")
    assert caught.value.code == "TooDeep"
    assert caught.value.message == f"cannot read web.yaml: nested deeper than 32 levels {place}"
