"""From a manifest to what is wanted: what stays the same object, and who restarts for whom."""

from __future__ import annotations

from typing import Any

import pytest

from harmony_agent.core.manifests import (
    DesiredDigests,
    desired_of,
    digests_of,
    fingerprints,
    followers_of,
    generations_of,
    last_change,
    reuse_validated,
    wire_fingerprint,
)
from harmony_agent.core.resources import Key
from scores import Manifest, SystemdUnit, WireManifest
from tests.strategies import LINEAGE
from tests.unit.core.make import manifest, record

FILE = {"kind": "File", "name": "a", "path": "/srv/a", "content": ""}


def units(*scores: dict[str, Any]) -> WireManifest:
    made = [SystemdUnit.model_validate(score) for score in scores]
    return Manifest(deployment="web", scores=made).bind("pi-01", LINEAGE, 1)


@pytest.mark.parametrize("value", [None, [], "x", {}, {"scores": 1}, {"scores": []}])
def test_what_has_no_list_of_scores_has_no_fingerprints(value: Any) -> None:
    assert list(fingerprints(value)) == []


def test_a_fingerprint_tells_numbers_from_truths() -> None:
    assert len({wire_fingerprint(one) for one in (1, 1.0, True, "1")}) == 4


def test_a_score_that_stood_just_so_is_not_validated_again() -> None:
    known = manifest("a").scores[0]
    value = {"generation": 4, "scores": [FILE, {**FILE, "content": "x"}]}
    prints = fingerprints(value)
    reused = reuse_validated(value, prints, {prints[0]: known})
    assert reused["scores"][0] is known
    assert reused["scores"][1] == value["scores"][1]
    assert reuse_validated(value, prints, {}) is value
    assert reuse_validated(value, [], {prints[0]: known}) is value


def test_a_spec_that_is_the_same_object_is_not_digested_again() -> None:
    first = manifest("a")
    old = desired_of(first, {})
    object.__setattr__(old[Key("File", "a")], "digest", "remembered")
    assert digests_of(first.scores, old) == {"File/a": "remembered"}
    assert digests_of(manifest("a").scores, old) != {"File/a": "remembered"}


def test_a_generation_is_that_of_the_last_change() -> None:
    old = desired_of(manifest("a", "b", generation=3), {})
    digests = digests_of(manifest("a", "b").scores) | {"File/b": "other", "File/c": "new"}
    assert generations_of(digests, 7, old) == {"File/a": 3, "File/b": 7, "File/c": 7}


def test_who_restarts_and_reloads_for_whom() -> None:
    wanted = desired_of(
        units(
            {
                "name": "app@.service",
                "content": "[Service]\nExecStart=/bin/true\n",
                "state": "none",
            },
            {"name": "app@a.service"},
            {
                "name": "web.service",
                "restart_on": ["SystemdUnit/app@a.service"],
                "reload_on": ["SystemdUnit/app@.service"],
            },
        ),
        {},
    )
    followers = followers_of(wanted.values())
    assert {key: sorted(map(str, found)) for key, found in followers.items()} == {
        "SystemdUnit/app@.service": ["SystemdUnit/app@a.service", "SystemdUnit/web.service"],
        "SystemdUnit/app@a.service": ["SystemdUnit/web.service"],
    }


def test_the_last_change_is_of_those_that_have_a_record() -> None:
    records = {
        Key("File", "a"): record("a", changed="b1:1:1"),
        Key("File", "b"): record("b", changed="b1:2:2"),
    }
    assert last_change(["File/a", "File/b", "File/c"], records) == "b1:2:2"
    assert last_change([], records) == last_change(["File/c"], records)


def test_the_digests_are_a_view() -> None:
    wanted = desired_of(manifest("a", "b"), {})
    view = DesiredDigests(wanted)
    assert dict(view) == {key: one.digest for key, one in wanted.items()}
    assert len(view) == 2
