"""The acceptance table, row by row, and what judges beside it: allowlist, ownership, the prune
guard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.core.admission import (
    Accept,
    DeviceView,
    EnforcedVersion,
    KindRules,
    NotAccepted,
    RefusedVersion,
    Unchanged,
    admit_manifest,
    held_while_paused,
    rejected,
)
from harmony_agent.core.resources import OwnershipRecord
from scores.base import Score
from scores.container import Container
from scores.file import File
from scores.manifest import MAX_ERRORS, FieldError, InvalidManifest, WireManifest
from tests.strategies import LINEAGE
from tests.unit.core.make import DIGEST, OTHER, manifest, record

ELSE = "00000000-0000-4000-8000-000000000000"
THIRD = "11111111-0000-4000-8000-000000000000"


def _admit(score: Score) -> Iterable[FieldError]:
    assert isinstance(score, File)
    if not score.path.startswith("/srv/"):
        yield FieldError("path", "OutsideRoots")
    if score.adopt:
        yield FieldError("", "NotHere")


def _claims(score: Score) -> frozenset[str]:
    assert isinstance(score, File)
    return frozenset({f"path:{score.path}"})


def _container_claims(score: Score) -> frozenset[str]:
    assert isinstance(score, Container)
    ports = {f"port:{port.protocol}:{port.host_port}" for port in score.ports}
    return frozenset(ports | {f"container:{score.name}"})


KINDS = {
    "File": KindRules(_admit, _claims),
    "Container": KindRules(lambda _score: (), _container_claims),
}


def device(*records: OwnershipRecord, taken: dict[str, str] | None = None) -> DeviceView:
    return DeviceView(KINDS, {str(one.key): one.on_remove for one in records}, taken or {})


def short(verdict: Any) -> tuple[str, ...]:
    """A verdict as ``("Fenced", "StaleGeneration")``."""
    return (
        (verdict.phase, verdict.reason)
        if isinstance(verdict, NotAccepted)
        else (type(verdict).__name__,)
    )


LAST = EnforcedVersion(LINEAGE, 3, DIGEST)
BACK = EnforcedVersion(LINEAGE, 3, DIGEST, RefusedVersion(6, OTHER, "generation 6 failed"))
FORGOT = EnforcedVersion(LINEAGE, 3, DIGEST, RefusedVersion(6, "", "generation 6 failed"))
TABLE: dict[str, tuple[EnforcedVersion | None, dict[str, Any], str, tuple[str, ...]]] = {
    "the first of all": (None, {}, DIGEST, ("Accept",)),
    "the first of all, at any generation": (None, {"generation": 900}, DIGEST, ("Accept",)),
    "same lineage, higher generation": (LAST, {"generation": 4}, OTHER, ("Accept",)),
    "same lineage, much higher generation": (LAST, {"generation": 2**53 - 1}, OTHER, ("Accept",)),
    "same lineage, higher generation, same scores": (LAST, {"generation": 4}, DIGEST, ("Accept",)),
    "same lineage, same generation, same bytes": (LAST, {}, DIGEST, ("Unchanged",)),
    "same lineage, same generation, other bytes": (
        LAST,
        {},
        OTHER,
        ("Rejected", "GenerationReused"),
    ),
    "lower generation": (LAST, {"generation": 2}, OTHER, ("Fenced", "StaleGeneration")),
    "lower generation, same bytes": (
        LAST,
        {"generation": 2},
        DIGEST,
        ("Fenced", "StaleGeneration"),
    ),
    "another lineage": (
        LAST,
        {"lineage": ELSE, "generation": 9},
        OTHER,
        ("Fenced", "LineageChanged"),
    ),
    "another lineage, lower generation": (
        LAST,
        {"lineage": ELSE, "generation": 1},
        OTHER,
        ("Fenced", "LineageChanged"),
    ),
    "another lineage, the wrong supersedes": (
        LAST,
        {"lineage": ELSE, "supersedes": THIRD, "generation": 4},
        OTHER,
        ("Fenced", "LineageChanged"),
    ),
    "another lineage, superseding itself": (
        LAST,
        {"lineage": ELSE, "supersedes": ELSE, "generation": 4},
        OTHER,
        ("Fenced", "LineageChanged"),
    ),
    "another lineage, the right supersedes": (
        LAST,
        {"lineage": ELSE, "supersedes": LINEAGE, "generation": 4},
        OTHER,
        ("Accept",),
    ),
    "the right supersedes, lower generation": (
        LAST,
        {"lineage": ELSE, "supersedes": LINEAGE, "generation": 2},
        OTHER,
        ("Fenced", "StaleGeneration"),
    ),
    "the right supersedes, same generation": (
        LAST,
        {"lineage": ELSE, "supersedes": LINEAGE},
        OTHER,
        ("Rejected", "GenerationReused"),
    ),
    "the older lineage after it was superseded": (
        EnforcedVersion(ELSE, 4, DIGEST),
        {"lineage": LINEAGE, "generation": 5},
        OTHER,
        ("Fenced", "LineageChanged"),
    ),
    "supersedes what is enforced already": (
        LAST,
        {"supersedes": ELSE, "generation": 4},
        OTHER,
        ("Accept",),
    ),
    "went back, the enforced bytes": (BACK, {}, DIGEST, ("Unchanged",)),
    "went back, the refused bytes": (BACK, {"generation": 6}, OTHER, ("Rejected", "Reverted")),
    "went back, other bytes of that generation": (
        BACK,
        {"generation": 6},
        DIGEST,
        ("Rejected", "GenerationReused"),
    ),
    "went back, in between": (BACK, {"generation": 5}, OTHER, ("Fenced", "StaleGeneration")),
    "went back, older than the enforced one": (
        BACK,
        {"generation": 2},
        OTHER,
        ("Fenced", "StaleGeneration"),
    ),
    "went back, newer": (BACK, {"generation": 7}, OTHER, ("Accept",)),
    "went back and forgot what from": (
        FORGOT,
        {"generation": 6},
        DIGEST,
        ("Rejected", "Reverted"),
    ),
    "removed": (LAST, {"removed": True, "generation": 4}, OTHER, ("Accept",)),
    "removed, lower generation": (
        LAST,
        {"removed": True, "generation": 2},
        OTHER,
        ("Fenced", "StaleGeneration"),
    ),
}


def test_data_that_nothing_brings_back_is_never_tried() -> None:
    view = DeviceView(KINDS, {"Volume/data": "delete-data", "Volume/kept": "delete"}, {})
    tried = manifest(generation=4, revert_after="5m")
    verdict = admit_manifest(LAST, tried, OTHER, view)
    assert isinstance(verdict, NotAccepted)
    assert (short(verdict), verdict.generation) == (("Rejected", "RevertLosesData"), 4)
    assert verdict.errors == (FieldError("revert_after", "RevertLosesData"),)
    assert "Volume/data" in verdict.message
    assert "kept" not in verdict.message
    untried = manifest(generation=4, allow_prune=2)
    assert admit_manifest(LAST, untried, OTHER, view) == Accept()


@pytest.mark.parametrize(("last", "fields", "digest", "verdict"), TABLE.values(), ids=TABLE)
def test_the_fence(
    last: EnforcedVersion | None, fields: dict[str, Any], digest: str, verdict: tuple[str, ...]
) -> None:
    names = [] if fields.get("removed") else ["a"]
    found = admit_manifest(last, manifest(*names, **fields), digest, device())
    assert short(found) == verdict
    if isinstance(found, NotAccepted):
        assert found.generation == fields.get("generation", 3)
        assert found.message


def test_the_message_says_which_generation_and_lineage() -> None:
    stale = admit_manifest(LAST, manifest(generation=2), OTHER, device())
    assert isinstance(stale, NotAccepted)
    assert stale.message == "generation 2 is older than the enforced one, 3"
    other = admit_manifest(LAST, manifest(lineage=ELSE), OTHER, device())
    assert isinstance(other, NotAccepted)
    assert ELSE in other.message
    assert LINEAGE in other.message


def _file(name: str, path: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "File", "name": name, "path": path, "content": "", **fields}


def _container(name: str, *ports: int) -> dict[str, Any]:
    return {
        "kind": "Container",
        "name": name,
        "image": "i",
        "ports": [{"host_port": port, "container_port": 80} for port in ports],
    }


UPGRADE = {
    "kind": "SystemUpgrade",
    "name": "u",
    "attempt_id": "a",
    "run_uid": "r",
    "expires_at": "2026-11-29T18:00:00Z",
}
FORBIDDEN: dict[str, tuple[list[dict[str, Any]], dict[str, str], list[tuple[str, str]]]] = {
    "a kind that isn't allowed here": (
        [_file("a", "/srv/a"), UPGRADE],
        {},
        [("scores[1].kind", "KindNotAllowed")],
    ),
    "what the configuration forbids": (
        [_file("a", "/etc/a")],
        {},
        [("scores[0].path", "OutsideRoots")],
    ),
    "what it forbids as a whole": (
        [_file("a", "/srv/a", adopt=True)],
        {},
        [("scores[0]", "NotHere")],
    ),
    "a name of another deployment": (
        [_file("a", "/srv/a")],
        {"File/a": "db"},
        [("scores[0].name", "OwnedByAnotherDeployment")],
    ),
    "a name of its own": ([_file("a", "/srv/a")], {"File/a": "web", "path:/srv/a": "web"}, []),
    "a path of another deployment": (
        [_file("b", "/srv/b"), _file("a", "/srv/a")],
        {"path:/srv/a": "db"},
        [("scores[1].path", "OwnedByAnotherDeployment")],
    ),
    "a port of another deployment": (
        [_container("c", 80)],
        {"port:tcp:80": "db"},
        [("scores[0].ports", "OwnedByAnotherDeployment")],
    ),
    "a container's name of another deployment": (
        [_container("c")],
        {"container:c": "db"},
        [("scores[0].name", "OwnedByAnotherDeployment")],
    ),
    "one port for two": (
        [_container("c", 80), _container("d", 80)],
        {},
        [("scores[1].ports", "DuplicateClaim")],
    ),
    "all at once": (
        [_file("a", "/etc/a", adopt=True), UPGRADE],
        {},
        [
            ("scores[0].path", "OutsideRoots"),
            ("scores[0]", "NotHere"),
            ("scores[1].kind", "KindNotAllowed"),
        ],
    ),
}


@pytest.mark.parametrize(("scores", "taken", "errors"), FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_this_device_does_not_allow(
    scores: list[dict[str, Any]], taken: dict[str, str], errors: list[tuple[str, str]]
) -> None:
    found = admit_manifest(LAST, manifest(generation=4, scores=scores), OTHER, device(taken=taken))
    if not errors:
        assert found == Accept()
        return
    assert isinstance(found, NotAccepted)
    assert found.phase == "Rejected"
    assert list(found.errors) == errors
    codes = {code for _, code in errors}
    assert found.reason == (codes.pop() if len(codes) == 1 else "Invalid")
    assert all(f"{field}: {code}" in found.message for field, code in errors)
    owned = "OwnedByAnotherDeployment" in found.message
    assert ("OwnedByAnotherDeployment (it belongs to the deployment db)" in found.message) is owned


def test_of_many_errors_a_few_are_told() -> None:
    many = [_file(f"f{index}", f"/etc/{index}") for index in range(100)]
    found = admit_manifest(None, manifest(scores=many), OTHER, device())
    assert isinstance(found, NotAccepted)
    assert len(found.errors) == MAX_ERRORS
    assert found.message.count("OutsideRoots") == 5
    assert found.message.endswith("and 95 more")


def test_the_fence_comes_before_what_the_device_does_not_allow() -> None:
    stale = manifest(generation=2, scores=[_file("a", "/etc/a")])
    assert short(admit_manifest(LAST, stale, OTHER, device())) == ("Fenced", "StaleGeneration")
    same = manifest(scores=[_file("a", "/etc/a")])
    assert admit_manifest(LAST, same, DIGEST, device()) == Unchanged()


PRUNE = [
    # owned, kept of them, allow_prune, held
    (0, 0, None, False),
    (1, 0, None, False),
    (2, 1, None, False),
    (2, 0, None, True),
    (3, 2, None, False),
    (3, 1, None, True),
    (3, 0, None, True),
    (4, 2, None, False),
    (4, 1, None, True),
    (10, 5, None, False),
    (10, 4, None, True),
    (10, 4, 5, True),
    (10, 4, 6, False),
    (10, 4, 7, False),
    (10, 0, 9, True),
    (10, 0, 10, False),
    (2, 0, 0, True),
]


@pytest.mark.parametrize(("owned", "stay", "allow", "held"), PRUNE)
def test_the_prune_guard(owned: int, stay: int, allow: int | None, held: bool) -> None:
    records = [record(f"r{index}") for index in range(owned)]
    fields = {} if allow is None else {"allow_prune": allow}
    names = [f"r{index}" for index in range(stay)]
    verdict = admit_manifest(
        LAST, manifest(*names, "new", generation=4, **fields), OTHER, device(*records)
    )
    if not held:
        assert verdict == Accept()
        return
    assert isinstance(verdict, NotAccepted)
    assert short(verdict) == ("Held", "PruneGuard")
    assert f"would remove {owned - stay} of {owned} resources" in verdict.message
    assert f"allow_prune: {owned - stay}" in verdict.message
    assert verdict.errors == (("allow_prune", "PruneGuard"),)
    assert verdict.generation == 4


def test_removing_the_deployment_needs_no_allow_prune() -> None:
    records = [record(f"r{index}") for index in range(5)]
    assert (
        admit_manifest(LAST, manifest(generation=4, removed=True), OTHER, device(*records))
        == Accept()
    )


def test_what_is_let_go_is_not_removed() -> None:
    records = [record(f"r{index}", on_remove="orphan") for index in range(5)]
    assert admit_manifest(LAST, manifest("new", generation=4), OTHER, device(*records)) == Accept()
    mixed = [
        record("a"),
        record("b"),
        record("c", on_remove="orphan"),
        record("d", on_remove="orphan"),
    ]
    assert admit_manifest(LAST, manifest("new", generation=4), OTHER, device(*mixed)) == Accept()


def test_a_resource_of_another_kind_with_the_same_name_is_another() -> None:
    records = [record("a", kind="SystemdUnit"), record("b", kind="SystemdUnit")]
    assert short(
        admit_manifest(LAST, manifest("a", "b", generation=4), OTHER, device(*records))
    ) == (
        "Held",
        "PruneGuard",
    )


def test_bytes_that_are_no_manifest() -> None:
    errors = tuple(FieldError(f"scores[{index}]", "Missing") for index in range(7))
    kept = rejected(InvalidManifest("Missing", errors, "the sentences"), 4)
    assert (kept.phase, kept.reason, kept.errors, kept.generation) == (
        "Rejected",
        "Missing",
        errors,
        4,
    )
    assert kept.message.endswith("scores[4]: Missing and 2 more")
    whole = rejected(InvalidManifest("NotJson", [FieldError("", "NotJson")], "x"), None)
    assert whole.message == "manifest: NotJson"
    assert whole.generation is None


GENERATIONS = st.integers(1, 6)
LINEAGES = st.sampled_from([LINEAGE, ELSE, THIRD])


@st.composite
def arrivals(draw: st.DrawFn) -> tuple[EnforcedVersion | None, WireManifest, str, DeviceView]:
    last = draw(
        st.none()
        | st.builds(EnforcedVersion, LINEAGES, GENERATIONS, st.sampled_from([DIGEST, OTHER]))
    )
    removed = draw(st.booleans())
    names = [] if removed else draw(st.lists(st.sampled_from("abcde"), unique=True))
    fields: dict[str, Any] = {
        "lineage": draw(LINEAGES),
        "generation": draw(GENERATIONS),
        "removed": removed,
    }
    superseded = draw(st.none() | LINEAGES)
    if superseded is not None:
        fields["supersedes"] = superseded
    if draw(st.booleans()):
        fields["allow_prune"] = draw(st.integers(0, 6))
    owned = draw(st.lists(st.sampled_from("abcdefgh"), unique=True))
    records = [
        record(name, on_remove=draw(st.sampled_from(["delete", "orphan"]))) for name in owned
    ]
    taken = draw(
        st.dictionaries(st.sampled_from(["File/a", "path:/srv/b"]), st.sampled_from(["web", "db"]))
    )
    digest = draw(st.sampled_from([DIGEST, OTHER]))
    return last, manifest(*names, **fields), digest, device(*records, taken=taken)


@settings(max_examples=500, deadline=None)
@given(arrivals())
def test_what_is_never_accepted(
    arrival: tuple[EnforcedVersion | None, WireManifest, str, DeviceView],
) -> None:
    last, new, digest, here = arrival
    verdict = admit_manifest(last, new, digest, here)
    if isinstance(verdict, Unchanged):
        assert last is not None
        assert (last.generation, last.digest) == (new.generation, digest)
    if not isinstance(verdict, Accept):
        return
    if last is not None:
        assert new.generation > last.generation
        assert last.lineage in (new.lineage, new.supersedes)
    wanted = {score.key for score in new.scores}
    assert not any(here.taken.get(key, "web") != "web" for key in wanted)
    going = [
        key for key, on_remove in here.has.items() if key not in wanted and on_remove == "delete"
    ]
    if not new.removed and len(going) > 1 and len(going) * 2 > len(here.has):
        assert new.allow_prune is not None
        assert len(going) <= new.allow_prune


@settings(max_examples=300, deadline=None)
@given(arrivals())
def test_whoever_is_kept_is_told_why(
    arrival: tuple[EnforcedVersion | None, WireManifest, str, DeviceView],
) -> None:
    last, new, digest, here = arrival
    verdict = admit_manifest(last, new, digest, here)
    if isinstance(verdict, NotAccepted):
        assert verdict.reason
        assert verdict.message
        assert verdict.generation == new.generation
        assert (verdict.phase == "Fenced") == (not verdict.errors)


def test_what_comes_while_it_is_paused_is_held() -> None:
    held = held_while_paused(4, "2026-11-29T19:00:00.000Z")
    assert (held.phase, held.reason, held.generation) == ("Held", "Paused", 4)
    assert "generation 4 waits until the pause ends (2026-11-29T19:00:00.000Z)" in held.message
