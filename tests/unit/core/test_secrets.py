"""Which sealed secrets are believed, and what waits for one that is missing."""

from __future__ import annotations

from typing import Any

import pytest
from nacl.public import PrivateKey

from harmony_agent.core.actions import Wait
from harmony_agent.core.resources import Desired, OwnershipRecord, SecretState
from harmony_agent.core.secrets import NotBelieved, believe, missing
from harmony_agent.core.signatures import Trust
from harmony_fleet.manifests.sealing import seal
from scores.canonical import canonical
from scores.file import File
from scores.secrets import DOMAIN, SealedSecret, Secret, pack, unpack
from tests.keys import FOREIGN, ROSTER, TestKey, trust

PUBLIC = bytes(PrivateKey(b"\x01" * 32).public_key)
SEALED = seal(PUBLIC, "pi-01", "pw", 5, b"hunter2")


def signed(found: SealedSecret, key: TestKey = ROSTER, tag: bytes = DOMAIN) -> bytes:
    value = found.wire()
    return canonical({**value, "signatures": [key.entry(value, tag)]})


def verdict(data: bytes, known: SealedSecret | None = None, trusted: Trust | None = None) -> str:
    try:
        return str(believe(data, "pi-01", "pw", trusted or trust(), known).version)
    except NotBelieved as error:
        return error.code


def at(version: int) -> SealedSecret:
    return SEALED.model_copy(update={"version": version})


REMOVED = SealedSecret(device="pi-01", name="pw", version=6, removed=True)
TABLE: dict[str, tuple[bytes, SealedSecret | None, str]] = {
    "the first": (signed(SEALED), None, "5"),
    "the next": (signed(at(6)), SEALED, "6"),
    "the same again": (signed(SEALED), SEALED, "5"),
    "the same, signed by nobody": (canonical(SEALED.wire()), SEALED, "SignatureMissing"),
    "an older one": (signed(at(4)), SEALED, "StaleVersion"),
    "another one of the same version": (
        signed(SEALED.model_copy(update={"sealed": "AAAA"})),
        SEALED,
        "StaleVersion",
    ),
    "an old one after it was taken back": (signed(SEALED), REMOVED, "StaleVersion"),
    "taken back": (signed(REMOVED), SEALED, "6"),
    "by a stranger": (signed(SEALED, FOREIGN), None, "SignatureUnknownKey"),
    "signed as a manifest is": (
        signed(SEALED, tag=b"harmony/v1/manifest\n"),
        None,
        "SignatureInvalid",
    ),
    "of another device": (
        signed(SEALED.model_copy(update={"device": "pi-02"})),
        None,
        "KeyMismatch",
    ),
    "another secret": (signed(SEALED.model_copy(update={"name": "other"})), None, "KeyMismatch"),
    "no JSON": (b"{", None, "NotJson"),
}


@pytest.mark.parametrize(("data", "known", "expected"), TABLE.values(), ids=list(TABLE))
def test_what_is_believed(data: bytes, known: SealedSecret | None, expected: str) -> None:
    assert verdict(data, known) == expected


@pytest.mark.parametrize("fields", [{"removed": True}, {"key": None}, {"sealed": None}])
def test_what_is_neither_sealed_nor_taken_back_is_no_secret(fields: dict[str, Any]) -> None:
    value = {**SEALED.wire(), **fields}
    assert verdict(canonical(value), trusted=Trust()) == "Invalid"


def test_where_nothing_has_to_be_signed_anything_is_believed_but_what_is_older() -> None:
    assert verdict(canonical(SEALED.wire()), trusted=Trust()) == "5"
    assert verdict(canonical(SEALED.wire()), at(6), Trust()) == "StaleVersion"


def test_a_box_says_what_it_is_for_and_its_length_tells_little() -> None:
    packed = pack("pi-01", "pw", 5, b"hunter2")
    assert unpack(packed, "pi-01", "pw", 5) == b"hunter2"
    for other in (("pi-02", "pw", 5), ("pi-01", "other", 5), ("pi-01", "pw", 6)):
        with pytest.raises(ValueError, match="something else"):
            unpack(packed, *other)
    for odd in (b"[]", b"{}", b'{"device":"pi-01","name":"pw","version":5,"value":1}'):
        with pytest.raises(ValueError, match="something else"):
            unpack(odd, "pi-01", "pw", 5)
    assert len(packed) == len(pack("pi-01", "pw", 5, b"a")) == 256


def desired(*held: SecretState) -> Desired[File]:
    spec = File(name="a", path="/srv/a", template=[Secret("pw")])
    return Desired(spec, spec.spec_digest(), 1, "web", secrets=held)


def test_what_is_missing_is_waited_for() -> None:
    assert missing(desired()) is None
    assert missing(desired(SecretState("pw", 5))) is None
    told = {
        state: missing(desired(state))
        for state in (
            SecretState("pw"),
            SecretState("pw", asked=True),
            SecretState("pw", why="it was taken back", asked=True),
        )
    }
    waits = [wait for wait in told.values() if isinstance(wait, Wait)]
    assert [(one.phase, one.reason) for one in waits] == [
        ("Progressing", "SecretMissing"),
        ("Blocked", "SecretMissing"),
        ("Blocked", "SecretMissing"),
    ]
    assert "(it was taken back)" in waits[2].message


def test_another_version_is_another_version_of_the_resource_and_no_other_spec() -> None:
    first, second = desired(SecretState("pw", 5)), desired(SecretState("pw", 6))
    assert first.digest == second.digest
    assert first.version != second.version
    assert desired().version == desired().digest
    record = OwnershipRecord(
        "File", "a", "web", first.digest, 1, "delete", frozenset(), first.version
    )
    assert record.converged
