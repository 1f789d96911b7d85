"""What is done once for many alike gives what it would give for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from harmony_fleet.manifests import shared as alike
from harmony_fleet.manifests.diff import diff
from harmony_fleet.manifests.shared import (
    bind_shared,
    content_of,
    decode_shared,
    diff_shared,
    message_of,
    specs_shared,
)
from scores import Container, File, Manifest
from scores.canonical import canonical
from scores.manifest import InvalidManifest, decode
from scores.signatures import signed_bytes
from tests.unit.fleet.build import OURS

NAMES = ("pi-1", "pi-2", "web", "device", "Pi")


def outcome(work: Callable[[], Any]) -> object:
    try:
        made = work()
    except InvalidManifest as error:
        return error.code, error.errors
    return type(made), made.canonical(), made.device, made.model_fields_set


def value(named: str, content: str, label: str, generation: int) -> dict[str, Any]:
    scores: list[Any] = [
        File(name="f", path="/f", content=content),
        Container(name="c", image="localhost/c", labels={"device": label}),
    ]
    return {
        **Manifest(deployment="web", scores=scores).bind("pi-1", OURS, generation).wire(),
        "device": named,
    }


VALUES = st.lists(
    st.tuples(
        st.sampled_from(NAMES),  # the key's
        st.sampled_from(NAMES),  # what the manifest says
        st.sampled_from(["x", '"device":"pi-1"', '"device":""', "pi-1"]),
        st.sampled_from(NAMES),
        st.integers(1, 2),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=80)
@given(VALUES)
def test_a_manifest_is_decoded_as_alone(values: list[tuple[str, str, str, str, int, bool]]) -> None:
    for key, named, content, label, generation, unknown in values:
        told = value(named, content, label, generation) | ({"unknown": 1} if unknown else {})
        data = canonical(told)
        assert outcome(lambda: decode_shared(data, key, "web")) == outcome(  # noqa: B023 - called at once
            lambda: decode(data, device=key, deployment="web")  # noqa: B023
        )


def test_those_alike_share_their_scores_and_what_they_say() -> None:
    first, second = (
        decode_shared(canonical(value(name, "x", "a", 1)), name, "web") for name in ("pi-1", "pi-2")
    )
    assert first.scores is second.scores
    assert content_of(first) is content_of(second)
    assert content_of(first) == first.content() == second.content()
    assert (
        content_of(Manifest(deployment="web", removed=True))
        == Manifest(deployment="x", removed=True).content()
    )


def test_what_is_made_of_those_alike_is_as_made_of_each() -> None:
    old, new = (
        Manifest(deployment="web", scores=[File(name="f", path="/f", content=text)])
        for text in "ab"
    )
    for name in ("pi-1", "pi-2"):
        wire = bind_shared(new, name, OURS, 2, None)
        assert wire.canonical() == new.bind(name, OURS, 2).canonical()
        assert diff_shared(old.bind(name, OURS, 1), wire) == diff(old, new)
        assert specs_shared(wire) == {"File/f": wire.scores[0].spec_digest()}
        assert diff_shared(None, wire) == diff(None, new)
    assert (
        bind_shared(new, "pi-3", OURS, 3, OURS).canonical()
        == new.bind("pi-3", OURS, 3, OURS).canonical()
    )
    with pytest.raises(ValidationError):
        bind_shared(new, "PI", OURS, 2, None)


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "_MOST", 2000)
    for kept in ("_DECODED", "_CONTENTS"):  # without what other tests left there
        monkeypatch.setattr(alike, kept, alike._Kept())
    for generation in range(1, 100):
        manifest = decode_shared(canonical(value("pi-1", "x", "a", generation)), "pi-1", "web")
        assert content_of(manifest) == manifest.content()
        assert len(alike._DECODED.known) < 20
        assert len(alike._CONTENTS.known) < 20


SIGNATURES = st.lists(
    st.tuples(
        st.sampled_from(["0" * 16, "1" * 16, "A" * 16]),
        st.sampled_from(["A", "B"]),
        st.sampled_from("AQB"),
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(NAMES), SIGNATURES, st.booleans()), min_size=1, max_size=8)
)
def test_a_signed_manifest_is_decoded_as_alone(
    values: list[tuple[str, list[tuple[str, str, str]], bool]],
) -> None:
    for name, signed, spaced in values:
        told = value(name, "x", "a", 1)
        if signed:
            told["signatures"] = [
                {"key": key, "signature": first * 85 + last + "=="} for key, first, last in signed
            ]
        data = canonical(told).replace(b"[{", b"[ {" if spaced else b"[{")
        assert outcome(lambda: decode_shared(data, name, "web")) == outcome(  # noqa: B023 - called at once
            lambda: decode(data, device=name, deployment="web")  # noqa: B023
        )


def test_what_is_signed_is_the_same_for_those_alike() -> None:
    manifest = Manifest(
        deployment="web", scores=[File(name="f", path="/f", content='"device":"x"')]
    )
    entry = {"key": "0" * 16, "signature": "A" * 86 + "=="}
    for name in ("pi-1", "pi-2", "x"):
        told = manifest.bind(name, OURS, 1).wire()
        wires = [
            decode_shared(canonical(told | {"signatures": [entry]}), name, "web"),
            manifest.bind(name, OURS, 1),
        ]
        wires += [
            bind_shared(manifest, name, OURS, 2, None),
            bind_shared(manifest, name, OURS, 2, OURS),
        ]
        for wire in wires:
            assert message_of(wire) == signed_bytes(wire.wire()) == message_of(wire)
    shared = [
        decode_shared(canonical(told | {"device": n, "signatures": [entry]}), n, "web")
        for n in ("pi-1", "pi-2")
    ]
    assert shared[0].scores is shared[1].scores
