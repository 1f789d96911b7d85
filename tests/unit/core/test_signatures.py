"""Whose manifests are believed: tables, and that no change of any field, however small, keeps a
signature right.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.core.signatures import Trust
from scores.canonical import canonical, digest
from scores.manifest import WireManifest, decode
from scores.signatures import DOMAIN, content_digest, key_id, read_key, signed_bytes, spell_key
from tests import strategies
from tests.keys import FOREIGN, NEXT, ROSTER, signed, trust
from tests.strategies import LINEAGE

VALUE: dict[str, Any] = {
    "api": "harmony/v1",
    "device": "pi-01",
    "deployment": "web",
    "lineage": LINEAGE,
    "generation": 3,
    "scores": [{"kind": "File", "name": "a", "path": "/srv/a", "content": "x"}],
}
GOOD = signed(VALUE)
ENTRY = GOOD["signatures"][0]


def verdict(device: Trust, value: Any) -> str:
    kept = device.verify(value, 3)
    if kept is None:
        return "believed"
    assert (kept.phase, kept.generation) == ("Rejected", 3)
    assert [(error.field, error.code) for error in kept.errors] == [("signatures", kept.reason)]
    assert kept.message
    return kept.reason


def entry(**changed: Any) -> dict[str, Any]:
    return {**GOOD, "signatures": [{**ENTRY, **changed}]}


def loose(text: str) -> str:
    """Another spelling of the same 64 bytes: base64's last character has bits that nobody reads."""
    return text[:-3] + chr(ord(text[-3]) + 1) + "=="


MISSING, UNKNOWN, INVALID = "SignatureMissing", "SignatureUnknownKey", "SignatureInvalid"
TABLE: dict[str, tuple[Any, str, str]] = {
    # the value, with `require`, and without
    "signed": (GOOD, "believed", "believed"),
    "signed by two, one of them known": (signed(VALUE, FOREIGN, ROSTER), "believed", "believed"),
    "signed by both that are known": (signed(VALUE, ROSTER, NEXT), "believed", "believed"),
    "unsigned": (VALUE, MISSING, "believed"),
    "signatures null": ({**VALUE, "signatures": None}, MISSING, "believed"),
    "signatures empty": ({**VALUE, "signatures": []}, MISSING, "believed"),
    "by a stranger": (signed(VALUE, FOREIGN), UNKNOWN, "believed"),
    "a stranger's under our name": (
        {**VALUE, "signatures": [{**FOREIGN.entry(VALUE), "key": ROSTER.id}]},
        INVALID,
        INVALID,
    ),
    "a made-up one under our other name beside it": (
        {**VALUE, "signatures": [ENTRY, {**ROSTER.entry(VALUE), "key": NEXT.id}]},
        "believed",
        "believed",
    ),
    "made-up ones under all our names": (
        {
            **VALUE,
            "signatures": [{**FOREIGN.entry(VALUE), "key": key.id} for key in (ROSTER, NEXT)],
        },
        INVALID,
        INVALID,
    ),
    "twice by one key": ({**VALUE, "signatures": [ENTRY, ENTRY]}, INVALID, INVALID),
    "five": ({**VALUE, "signatures": [ENTRY] * 5}, INVALID, INVALID),
    "of a million": ({**VALUE, "signatures": [ENTRY] * 10_000}, INVALID, INVALID),
    "a text": ({**VALUE, "signatures": ENTRY["signature"]}, INVALID, INVALID),
    "an object": ({**VALUE, "signatures": ENTRY}, INVALID, INVALID),
    "a list of texts": ({**VALUE, "signatures": [ENTRY["signature"]]}, INVALID, INVALID),
    "no key": ({**VALUE, "signatures": [{"signature": ENTRY["signature"]}]}, INVALID, INVALID),
    "a key that is none": (entry(key=7), INVALID, INVALID),
    "a key in capitals": (entry(key=ROSTER.id.upper()), INVALID, INVALID),
    "a key of another form": (entry(key="hunter2"), INVALID, INVALID),
    "an empty signature": (entry(signature=""), INVALID, INVALID),
    "a short signature": (entry(signature=base64.b64encode(b"x" * 63).decode()), INVALID, INVALID),
    "a long signature": (entry(signature=base64.b64encode(b"x" * 65).decode()), INVALID, INVALID),
    "of zeros": (entry(signature=base64.b64encode(bytes(64)).decode()), INVALID, INVALID),
    "spelt otherwise": (entry(signature=loose(ENTRY["signature"])), INVALID, INVALID),
    "with a line break": (entry(signature=ENTRY["signature"] + "\n"), INVALID, INVALID),
    "not ASCII": (entry(signature="é" * 88), INVALID, INVALID),
    "half a surrogate beside it": ({**GOOD, "deployment": "\ud800"}, INVALID, INVALID),
    "re-addressed to another device": ({**GOOD, "device": "pi-02"}, INVALID, INVALID),
    "re-addressed to another deployment": ({**GOOD, "deployment": "db"}, INVALID, INVALID),
    "a generation more": ({**GOOD, "generation": 4}, INVALID, INVALID),
    "a generation less": ({**GOOD, "generation": 2}, INVALID, INVALID),
    "made a removal": ({**GOOD, "removed": True, "scores": []}, INVALID, INVALID),
    "said not to be removed": ({**GOOD, "removed": False}, INVALID, INVALID),
    "another lineage": ({**GOOD, "lineage": LINEAGE[:-1] + "7"}, INVALID, INVALID),
    "taken over": ({**GOOD, "supersedes": LINEAGE}, INVALID, INVALID),
    "allowed to prune": ({**GOOD, "allow_prune": 1}, INVALID, INVALID),
    "emptied": ({**GOOD, "scores": []}, INVALID, INVALID),
    "with a field that nothing knows": ({**GOOD, "sh": "reboot"}, INVALID, INVALID),
    "another api": ({**GOOD, "api": "harmony/v2"}, INVALID, INVALID),
}


@pytest.mark.parametrize(("value", "required", "not_required"), TABLE.values(), ids=TABLE)
def test_what_is_believed(value: Any, required: str, not_required: str) -> None:
    before = json.dumps(value)
    assert verdict(trust(ROSTER, NEXT), value) == required
    assert verdict(trust(ROSTER, NEXT, require=False), value) == not_required
    assert verdict(Trust(), value) == "believed"
    assert verdict(Trust(require=True), value) in (MISSING, UNKNOWN, INVALID)
    assert json.dumps(value) == before


def test_other_spellings_are_refused_where_signatures_are_required() -> None:
    for data in (
        json.dumps(GOOD).encode(),
        json.dumps(GOOD, indent=1).encode(),
        canonical(GOOD) + b"\n",
    ):
        kept = trust().verify(GOOD, 3, data)
        assert kept is not None
        assert (kept.phase, kept.reason, kept.generation) == ("Rejected", "NotCanonical", 3)
        assert trust(require=False).verify(GOOD, 3, data) is None
    assert trust().verify(GOOD, 3, canonical(GOOD)) is None


def test_a_generation_is_known_by_its_content_whoever_signed_it() -> None:
    assert content_digest(VALUE) == digest(canonical(VALUE))
    for other in (
        GOOD,
        signed(VALUE, NEXT),
        signed(VALUE, ROSTER, FOREIGN),
        dict(reversed(GOOD.items())),
    ):
        assert content_digest(other) == content_digest(VALUE)
    assert content_digest({**GOOD, "generation": 4}) != content_digest(VALUE)


@pytest.mark.parametrize("value", [None, 1, "x", [], [GOOD]])
def test_what_is_no_object_is_left_to_the_models(value: Any) -> None:
    assert trust().verify(value, None) is None


def test_a_rejection_repeats_nothing_but_ids() -> None:
    for value, _, _ in TABLE.values():
        kept = trust(ROSTER, NEXT).verify(value, 3)
        assert kept is None or not any(
            word in kept.message for word in ("hunter2", "reboot", ENTRY["signature"])
        )


@settings(max_examples=100, deadline=None)
@given(value=strategies.manifests(), data=st.data())
def test_any_change_of_any_field_invalidates(value: dict[str, Any], data: st.DataObject) -> None:
    """Whatever is put at whatever place: where the canonical bytes differ, the signature is
    wrong.
    """
    good = signed(value)
    device = trust()
    assert device.verify(json.loads(canonical(good)), 1) is None
    place = data.draw(st.sampled_from([place for place in _places(value) if place]))
    new: Any = data.draw(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({})
    )
    changed = _replaced(good, place, new)
    assert (device.verify(changed, 1) is None) == (_form(changed) == _form(good))


@settings(max_examples=60, deadline=None)
@given(value=strategies.manifests(), data=st.data())
def test_a_flipped_bit_of_the_bytes_is_never_accepted_as_something_else(
    value: dict[str, Any], data: st.DataObject
) -> None:
    raw = bytearray(canonical(signed(value)))
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        changed = json.loads(raw)
    except ValueError:
        return
    if (
        trust().verify(changed, 1) is None
    ):  # it hit what spells the same, or a key that no signature needs
        assert signed_bytes(changed) == signed_bytes(value) or not isinstance(changed, dict)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from([*ENTRY.values(), ENTRY]),
    lambda inner: (
        st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from(["key", "signature"]), inner)
    ),
    max_leaves=10,
)


@given(signatures=JSON)
def test_whatever_stands_as_signatures(signatures: Any) -> None:
    altered = {**VALUE, "generation": 4, "signatures": signatures}
    assert verdict(trust(ROSTER, NEXT), altered | {"generation": 3}) == (
        "believed" if signatures == [ENTRY] else verdict(trust(ROSTER, NEXT), altered)
    )
    assert verdict(trust(ROSTER, NEXT), altered) in (MISSING, UNKNOWN, INVALID)


def test_what_is_signed_is_the_canonical_manifest_behind_a_tag() -> None:
    data = canonical(GOOD)
    manifest = decode(data, device="pi-01", deployment="web")
    assert manifest.canonical() == data
    assert signed_bytes(manifest.wire()) == DOMAIN + canonical(VALUE) == signed_bytes(VALUE)
    unsigned = WireManifest.model_validate(VALUE)
    assert unsigned.content() == manifest.content()
    assert b"signatures" not in unsigned.canonical()


def test_a_signature_of_the_same_bytes_for_another_purpose_is_none() -> None:
    from nacl.signing import SigningKey

    private = SigningKey(bytes(32))
    public = bytes(private.verify_key)
    bare = base64.b64encode(private.sign(canonical(VALUE)).signature).decode()
    device = Trust(True, {key_id(public): public}, trust().valid)
    assert (
        verdict(device, {**VALUE, "signatures": [{"key": key_id(public), "signature": bare}]})
        == INVALID
    )


KEYS = {
    "no prefix": ROSTER.spelt.removeprefix("ed25519:"),
    "another algorithm": ROSTER.spelt.replace("ed25519", "rsa"),
    "short": "ed25519:" + base64.b64encode(bytes(31)).decode(),
    "long": "ed25519:" + base64.b64encode(bytes(33)).decode(),
    "hex": "ed25519:" + ROSTER.public.hex(),
    "no padding": ROSTER.spelt.rstrip("="),
    "blank around": f" {ROSTER.spelt}",
    "blank inside": ROSTER.spelt.replace(":", ": "),
    "url alphabet": "ed25519:" + "_" * 43 + "=",
    "empty": "",
}


@pytest.mark.parametrize("text", KEYS.values(), ids=KEYS)
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match="must be ed25519:"):
        read_key(text)


def test_how_a_key_is_spelt_and_named() -> None:
    assert read_key(spell_key(ROSTER.public)) == ROSTER.public
    assert key_id(bytes(32)) == "66687aadf862bd77"


def test_weak_keys_believe_nothing() -> None:
    """Points of small order, for which some libraries take a signature of zeros for right."""
    for public in (bytes(32), bytes([1]) + bytes(31), bytes.fromhex("ec" + "ff" * 30 + "7f")):
        device = Trust(True, {key_id(public): public}, trust().valid)
        for made in (bytes(64), public + bytes(32)):
            entry = {"key": key_id(public), "signature": base64.b64encode(made).decode()}
            assert verdict(device, {**VALUE, "signatures": [entry]}) == INVALID


def _form(value: Any) -> bytes | None:
    try:
        return canonical(value)
    except ValueError:
        return None


def _places(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [here, *(place for key, one in inner for place in _places(one, (*here, key)))]


def _replaced(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    if not place:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[place[0]] = _replaced(value[place[0]], place[1:], new)
    return copy


def test_nothing_is_believed_where_nobody_can_verify() -> None:
    able = trust(ROSTER)
    assert verdict(able, GOOD) == "believed"
    assert verdict(Trust(require=True, keys=able.keys), GOOD) == INVALID
