"""What is no manifest: each is refused with a code and a field path, and no value is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scores.canonical import MAX_DEPTH, canonical
from scores.manifest import MAX_ERRORS, MAX_MANIFEST, MAX_SCORES, InvalidManifest, decode
from tests import strategies
from tests.unit.scores.values import (
    ALL,
    CONTAINER,
    EACH,
    FILE,
    UNIT,
    UPGRADE,
    Place,
    manifest,
    places,
    replaced,
)

SECRET = "hunter2marker"


def refusal(data: bytes) -> InvalidManifest:
    """How `data` is refused."""
    with pytest.raises(InvalidManifest) as caught:
        decode(data, device="pi-01", deployment="web")
    return caught.value


def found(value: Any) -> tuple[str, str]:
    """The first field and code of a JSON value's refusal."""
    error = refusal(json.dumps(value).encode())
    return error.errors[0].field, error.errors[0].code


BYTES = {
    "empty": (b"", "NotJson"),
    "text": (b"hello", "NotJson"),
    "half": (b'{"api":', "NotJson"),
    "two values": (b"{} {}", "NotJson"),
    "comment": (b"{} // no", "NotJson"),
    "trailing comma": (b'{"a":1,}', "NotJson"),
    "single quotes": (b"{'a':1}", "NotJson"),
    "byte order mark": (b"\xef\xbb\xbf{}", "NotJson"),
    "raw NUL": (b"\x00{}", "NotJson"),
    "control character in text": (b'{"a":"\x01"}', "NotJson"),
    "UTF-16": ("{}".encode("utf-16"), "NotUtf8"),
    "not UTF-8": (b'{"a":"\xff"}', "NotUtf8"),
    "encoded surrogate": (b'{"a":"\xed\xa0\x80"}', "NotUtf8"),
    "overlong": (b'{"a":"\xc0\x80"}', "NotUtf8"),
    "NaN": (b'{"a":NaN}', "NotFinite"),
    "Infinity": (b'{"a":-Infinity}', "NotFinite"),
    "too large a float": (b'{"a":1e999}', "NumberTooLarge"),
    "too small a float": (b'{"a":-1e999}', "NumberTooLarge"),
    "digits without end": (b'{"a":' + b"9" * 5000 + b"}", "NumberTooLarge"),
    "duplicate key": (b'{"a":1,"a":2}', "DuplicateKey"),
    "duplicate key by escape": (b'{"a":1,"\\u0061":2}', "DuplicateKey"),
    "duplicate key inside": (b'[{"b":[{"a":1,"a":1}]}]', "DuplicateKey"),
    "deep list": (b"[" * 100_000, "TooDeep"),
    "deep object": (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "TooDeep"),
    "one too deep": (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "TooDeep"),
    "over 1 MiB": (b" " * (MAX_MANIFEST + 1), "TooLarge"),
    "a list": (b"[]", "WrongType"),
    "null": (b"null", "WrongType"),
    "a number": (b"1", "WrongType"),
    "no fields": (b"{}", "Missing"),
}


@pytest.mark.parametrize(("data", "code"), BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_manifest(data: bytes, code: str) -> None:
    error = refusal(data)
    assert error.code == code
    assert {item.code for item in error.errors} == {code}


def test_brackets_inside_text_are_no_depth() -> None:
    data = canonical(manifest({**FILE, "content": "[" * 1000 + '{"\\"' * 100}))
    assert decode(data, device="pi-01", deployment="web").canonical() == data


def test_exactly_as_deep_as_is_read() -> None:
    error = refusal(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert error.code == "WrongType"  # it was read, and is no object


def test_exactly_one_mebibyte_is_read() -> None:
    data = canonical(manifest(FILE))
    assert (
        decode(
            data + b" " * (MAX_MANIFEST - len(data)), device="pi-01", deployment="web"
        ).generation
        == 3
    )


SIGNED = {"key": "0123456789abcdef", "signature": "A" * 86 + "=="}
FIELDS: dict[str, tuple[Any, str, str]] = {
    "api": (manifest(api="harmony/v2"), "api", "NotAllowed"),
    "no api": ({key: value for key, value in manifest().items() if key != "api"}, "api", "Missing"),
    "no scores": (
        {key: value for key, value in manifest().items() if key != "scores"},
        "scores",
        "Missing",
    ),
    "no lineage": (
        {key: value for key, value in manifest().items() if key != "lineage"},
        "lineage",
        "Missing",
    ),
    "signatures text": (manifest(signatures=SIGNED["signature"]), "signatures", "WrongType"),
    "signatures none": (manifest(signatures=[]), "signatures", "TooFew"),
    "signatures five": (manifest(signatures=[SIGNED] * 5), "signatures", "TooMany"),
    "signatures twice": (
        manifest(signatures=[SIGNED] * 2),
        "signatures[1].key",
        "DuplicateSignature",
    ),
    "signature text": (manifest(signatures=["x"]), "signatures[0]", "WrongType"),
    "signature without key": (
        manifest(signatures=[{"signature": SIGNED["signature"]}]),
        "signatures[0].key",
        "Missing",
    ),
    "signature's key": (
        manifest(signatures=[{**SIGNED, "key": SECRET}]),
        "signatures[0].key",
        "InvalidKeyId",
    ),
    "signature short": (
        manifest(signatures=[{**SIGNED, "signature": "AAAA"}]),
        "signatures[0].signature",
        "InvalidSignature",
    ),
    "signature number": (
        manifest(signatures=[{**SIGNED, "signature": 5}]),
        "signatures[0].signature",
        "WrongType",
    ),
    "signature's field": (
        manifest(signatures=[{**SIGNED, "alg": "none"}]),
        "signatures[0].alg",
        "UnknownField",
    ),
    "unknown field": (manifest(extra=1), "extra", "UnknownField"),
    "unknown field of a Score": (
        manifest({**FILE, "contnet": "x"}),
        "scores[0].contnet",
        "UnknownField",
    ),
    "generation 0": (manifest(generation=0), "generation", "OutOfRange"),
    "generation text": (manifest(generation="3"), "generation", "WrongType"),
    "generation float": (manifest(generation=3.0), "generation", "WrongType"),
    "generation true": (manifest(generation=True), "generation", "WrongType"),
    "generation huge": (manifest(generation=2**53), "generation", "OutOfRange"),
    "generation of 100 digits": (manifest(generation=10**100), "generation", "OutOfRange"),
    "lineage": (manifest(lineage="x"), "lineage", "InvalidLineage"),
    "lineage in capitals": (
        manifest(lineage="7B0E4A52-1111-4222-8333-444455556666"),
        "lineage",
        "InvalidLineage",
    ),
    "supersedes": (manifest(supersedes="x"), "supersedes", "InvalidLineage"),
    "device": (manifest(device="Pi"), "device", "InvalidName"),
    "device of another": (manifest(device="pi-02"), "device", "KeyMismatch"),
    "deployment of another": (manifest(deployment="db"), "deployment", "KeyMismatch"),
    "device of 64": (manifest(device="d" * 64), "device", "TooLong"),
    "removed text": (manifest(removed="yes"), "removed", "WrongType"),
    "removed number": (manifest(removed=1), "removed", "WrongType"),
    "removed with scores": (manifest(FILE, removed=True), "scores", "RemovedWithScores"),
    "allow_prune": (manifest(allow_prune=-1), "allow_prune", "OutOfRange"),
    "scores text": (manifest() | {"scores": "x"}, "scores", "WrongType"),
    "scores object": (manifest() | {"scores": {}}, "scores", "WrongType"),
    "scores null": (manifest() | {"scores": None}, "scores", "WrongType"),
    "Score number": (manifest(5), "scores[0]", "WrongType"),  # type: ignore[arg-type]
    "no kind": (manifest({"name": "x"}), "scores[0]", "UnknownKind"),
    "unknown kind": (manifest({**FILE, "kind": "Shell"}), "scores[0]", "UnknownKind"),
    "kind list": (manifest({**FILE, "kind": ["File"]}), "scores[0]", "UnknownKind"),
    "kind surrogate": (manifest({**FILE, "kind": "\ud800"}), "scores[0]", "UnknownKind"),
    "same key twice": (
        manifest(FILE, {**FILE, "path": "/srv/b"}),
        "scores[1].name",
        "DuplicateResource",
    ),
    "same path twice": (
        manifest(FILE, UNIT, {**FILE, "name": "b"}),
        "scores[2].path",
        "DuplicatePath",
    ),
    "after nothing": (
        manifest(UNIT, {**FILE, "after": ["File/x"]}),
        "scores[1].after[0]",
        "AfterUnknown",
    ),
    "restart_on nothing": (
        manifest(FILE, {**UNIT, "restart_on": ["File/motd", "File/x"]}),
        "scores[1].restart_on[1]",
        "AfterUnknown",
    ),
    "reload_on nothing": (
        manifest({**UNIT, "reload_on": ["File/x"]}),
        "scores[0].reload_on[0]",
        "AfterUnknown",
    ),
    "after itself": (manifest({**FILE, "after": ["File/motd"]}), "scores[0]", "AfterCycle"),
    "circle of two": (
        manifest(
            CONTAINER,
            {**FILE, "after": ["SystemdUnit/web.service"]},
            {**UNIT, "restart_on": ["File/motd"]},
        ),
        "scores[1]",
        "AfterCycle",
    ),
    "after no key": (
        manifest({**FILE, "after": ["motd"]}),
        "scores[0].after[0]",
        "InvalidResourceKey",
    ),
    "after of no kind": (
        manifest({**FILE, "after": ["Shell/motd"]}),
        "scores[0].after[0]",
        "InvalidResourceKey",
    ),
    "after text": (manifest({**FILE, "after": "File/motd"}), "scores[0].after", "WrongType"),
    "restart_on of a File": (
        manifest(UNIT, {**FILE, "restart_on": ["SystemdUnit/web.service"]}),
        "scores[1].restart_on",
        "NotRestartable",
    ),
    "restart_on of an upgrade": (
        manifest(FILE, {**UPGRADE, "restart_on": ["File/motd"]}),
        "scores[1].restart_on",
        "NotRestartable",
    ),
}


@pytest.mark.parametrize(("value", "field", "code"), FIELDS.values(), ids=FIELDS)
def test_fields(value: Any, field: str, code: str) -> None:
    assert found(value) == (field, code)


def test_1001_resources() -> None:
    many = [
        {**FILE, "name": f"f{index}", "path": f"/srv/{index}"} for index in range(MAX_SCORES + 1)
    ]
    assert found(manifest(*many)) == ("scores", "TooMany")
    assert (
        len(decode(canonical(manifest(*many[1:])), device="pi-01", deployment="web").scores)
        == MAX_SCORES
    )


def test_a_long_chain_of_needs_is_no_circle_and_costs_no_stack() -> None:
    chain = [
        {**FILE, "name": f"f{index}", "path": f"/srv/{index}", "after": [f"File/f{index + 1}"]}
        for index in range(999)
    ]
    chain.append({**FILE, "name": "f999", "path": "/srv/999"})
    assert len(decode(canonical(manifest(*chain)), device="pi-01", deployment="web").scores) == 1000
    chain[-1]["after"] = ["File/f0"]
    assert found(manifest(*chain))[1] == "AfterCycle"


def test_of_many_errors_a_few_are_named() -> None:
    error = refusal(json.dumps(manifest(*[{**FILE, "name": ""}] * 100)).encode())
    assert len(error.errors) == MAX_ERRORS
    assert error.errors[0].field == "scores[0].name"
    assert str(error).endswith("and 80 more")


def test_several_kinds_of_error_are_invalid_as_a_whole() -> None:
    error = refusal(json.dumps(manifest({**FILE, "path": "a", "mode": "9"})).encode())
    assert error.code == "Invalid"
    assert set(error.errors) == {
        ("scores[0].path", "PathNotNormal"),
        ("scores[0].mode", "InvalidFormat"),
    }


def test_the_message_names_field_and_fix() -> None:
    error = refusal(json.dumps(manifest({**FILE, "kind": SECRET})).encode())
    assert (
        str(error)
        == "scores[0]: kind must be one of File, SystemdUnit, Container, SystemUpgrade, Session, Volume, Network, Package"
    )


def test_an_odd_field_name_is_cut_and_printable() -> None:
    field, code = found(manifest(**{"\n\x1b[31m" + "x" * 500: 1}))
    assert code == "UnknownField"
    assert field == "??[31m" + "x" * 58


WRONG: tuple[Any, ...] = (
    SECRET,
    f"{SECRET}\0",
    f"{SECRET}\ud800",
    f"/{SECRET}/..",
    f"{SECRET}={SECRET}",
    f"{SECRET}\n",
    SECRET * 1000,
    [SECRET],
    [[SECRET]],
    {"k": SECRET},
    {"kind": SECRET},
    [{"kind": SECRET}],
    {"http": {"port": SECRET}},
)
NUMBER = "734912"
NUMBERS: tuple[Any, ...] = (
    -734912,
    734912.5,
    7349127349127349127349127349127,
    [734912],
    {"a": 734912},
)


def told(value: Any) -> str:
    """All that is told where a JSON value is refused, and "" where it is a manifest."""
    try:
        decode(json.dumps(value).encode(), device="pi-01", deployment="web")
    except InvalidManifest as error:
        return " ".join(
            [str(error), repr(error), repr(error.__cause__), error.code, repr(error.errors)]
        )
    return ""


def _positions() -> list[tuple[str, Place]]:
    return [(name, place) for name, value in ALL.items() for place in places(value)]


@pytest.mark.parametrize(("name", "place"), _positions(), ids=str)
def test_no_value_in_any_position_is_told(name: str, place: Place) -> None:
    others = [value for other, value in ALL.items() if other != name]
    texts = [told(manifest(replaced(ALL[name], place, wrong), *others)) for wrong in WRONG]
    numbers = [told(manifest(replaced(ALL[name], place, wrong), *others)) for wrong in NUMBERS]
    assert not [text for text in texts if SECRET in text]
    assert not [text for text in numbers if NUMBER in text]
    assert sum(map(bool, texts + numbers)) >= 3


@pytest.mark.parametrize(
    "place", [place for place in places(manifest()) if place != ("scores",)], ids=str
)
def test_no_value_around_the_scores_is_told(place: Place) -> None:
    texts = [told(replaced(manifest(), place, wrong)) for wrong in WRONG]
    assert all(texts)
    assert not [text for text in texts if SECRET in text]


@pytest.mark.parametrize("name", ["env", "labels", "dropins"])
def test_a_key_that_is_wrong_is_no_part_of_the_path(name: str) -> None:
    score = UNIT if name == "dropins" else CONTAINER
    key = f"{SECRET}\0" if name == "labels" else f"{SECRET}={SECRET}"
    error = refusal(json.dumps(manifest({**score, name: {key: "x"}})).encode())
    assert error.errors[0].field == f"scores[0].{name}"
    assert SECRET not in str(error)


@settings(max_examples=300, deadline=None)
@given(
    st.binary(max_size=200) | strategies.json_values().map(lambda value: json.dumps(value).encode())
)
def test_whatever_arrives_is_refused_and_no_more(data: bytes) -> None:
    error = refusal(data)
    assert error.code
    assert error.errors


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_value_of_any_type_anywhere_is_refused_or_a_manifest(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(ALL)))
    others = [value for other, value in ALL.items() if other != name]
    place = data.draw(st.sampled_from(list(places(ALL[name]))))
    value = manifest(replaced(ALL[name], place, data.draw(strategies.json_values())), *others)
    try:
        accepted = decode(json.dumps(value).encode(), device="pi-01", deployment="web")
    except InvalidManifest as error:
        refused = error
    else:
        again = decode(accepted.canonical(), device="pi-01", deployment="web")
        assert again.canonical() == accepted.canonical()
        return
    assert refused.errors


def test_every_kind_is_a_manifest_as_it_stands() -> None:
    decode(canonical(manifest(*ALL.values())), device="pi-01", deployment="web")
    for value in EACH.values():
        decode(canonical(manifest(value)), device="pi-01", deployment="web")
