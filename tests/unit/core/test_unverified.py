"""Bytes that nobody has checked: read where they can be, None where they can't, and no other error."""

from __future__ import annotations

import json

import pytest

from harmony_agent.core.admission import EnforcedVersion, RefusedVersion
from harmony_agent.core.unverified import (
    claimed_generation,
    enforced_from_status,
    identity,
    is_enforced,
)
from scores.canonical import digest
from scores.manifest import MAX_MANIFEST
from scores.names import MAX_GENERATION
from scores.signatures import content_digest

DEEP = b"[" * 100_000
BROKEN = (None, b"", b"\xff", b"[", b"[]", b"null", b"7", b'"text"', DEEP)
STATUS = {"lineage": "l", "generation": 3, "digest": "sha256:0"}
SPEC = {"deployment": "web", "generation": 3}
SIGNED = {**SPEC, "signatures": {"k": "s"}}


@pytest.mark.parametrize("data", [*BROKEN, b"{}", b'{"lineage":"l","generation":"x","digest":""}'])
def test_a_status_that_says_nothing(data: bytes | None) -> None:
    assert enforced_from_status(data) is None


def test_a_status_says_what_was_enforced() -> None:
    assert enforced_from_status(json.dumps(STATUS).encode()) == EnforcedVersion("l", 3, "sha256:0")
    assert enforced_from_status(b'{"lineage":"l","generation":1e999,"digest":""}') is None


def test_a_status_says_which_generation_was_taken_back() -> None:
    told = {"lineage": "a", "generation": 7, "digest": "d", "message": "in its time"}
    told |= {"rejected": {"generation": 8, "reason": "Reverted", "errors": []}}
    found = enforced_from_status(json.dumps(told).encode())
    assert found is not None
    assert found.refused == RefusedVersion(8, "", "in its time")


@pytest.mark.parametrize("data", [*BROKEN[1:], b"{}"])
def test_bytes_that_claim_no_generation(data: bytes) -> None:
    assert claimed_generation(data) is None


@pytest.mark.parametrize("number", [0, -1, True, "3", 3.0, None, MAX_GENERATION + 1])
def test_what_is_no_generation(number: object) -> None:
    assert claimed_generation(json.dumps({"generation": number}).encode()) is None


def test_a_generation_is_read_from_what_isn_t_too_long() -> None:
    text = json.dumps(SPEC).encode()
    assert claimed_generation(text) == 3
    assert claimed_generation(text + b" " * MAX_MANIFEST) is None


def test_a_generation_is_known_by_its_content_whoever_signed_it() -> None:
    data = json.dumps(SIGNED).encode()
    last = EnforcedVersion("l", 3, content_digest(SPEC))
    assert identity(None, SIGNED, data) == identity(last, SIGNED, data) == last.digest
    assert is_enforced(last, SIGNED, data)
    assert not is_enforced(last, {**SIGNED, "generation": 4}, data)
    assert not is_enforced(None, SIGNED, data)


def test_the_digest_that_an_older_agent_took_is_known_again() -> None:
    data = json.dumps(SIGNED).encode()
    last = EnforcedVersion("l", 3, digest(data))
    assert identity(last, SIGNED, data) == last.digest
    assert is_enforced(last, SIGNED, data)


@pytest.mark.parametrize("value", [None, [], "x", {"no": float("nan")}])
def test_what_has_no_canonical_bytes_is_not_what_is_enforced(value: object) -> None:
    assert not is_enforced(EnforcedVersion("l", 3, "sha256:0"), value, b"")
