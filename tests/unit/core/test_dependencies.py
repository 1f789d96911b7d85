"""What may be worked on now, and what must go first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_agent.core.dependencies import Leaving, in_the_way, outlives, unmet
from harmony_agent.core.resources import Key, OwnershipRecord
from scores.status import ResourcePhase, ResourceStatus
from tests.unit.core.make import DIGEST, OTHER, record, resource

A, B = Key("File", "a"), Key("File", "b")


@pytest.mark.parametrize(
    ("phase", "met"),
    [
        ("Ready", True),
        ("Completed", True),
        ("Pending", False),
        ("Progressing", False),
        ("Degraded", False),
        ("Failed", False),
        ("Blocked", False),
        ("Removing", False),
        ("Unknown", False),
    ],
)
def test_a_need_is_met_when_ready_or_completed(phase: ResourcePhase, met: bool) -> None:
    assert unmet(["File/a"], {A: DIGEST}, {A: resource(phase)}) == ([] if met else ["File/a"])


@pytest.mark.parametrize(
    ("digests", "statuses"),
    [
        ({A: DIGEST}, {}),
        ({A: OTHER}, {A: resource("Ready")}),
        ({}, {A: resource("Ready")}),
    ],
    ids=["never looked at", "ready with an older spec", "not wanted"],
)
def test_a_need_is_not_met(digests: dict[Key, str], statuses: dict[Key, ResourceStatus]) -> None:
    assert unmet(["File/a"], digests, statuses) == ["File/a"]


def test_unmet_needs_keep_their_order() -> None:
    statuses = {A: resource("Ready"), B: resource("Failed")}
    assert unmet(["File/c", "File/a", "File/b"], {A: DIGEST, B: DIGEST}, statuses) == [
        "File/c",
        "File/b",
    ]
    assert unmet([], {}, {}) == []


def test_what_leaves_is_in_the_way_of_what_claims_the_same() -> None:
    leaving = Leaving(
        [record("a", "path:/srv/x"), record("b", "path:/srv/y"), record("new", "path:/srv/x")]
    )
    assert in_the_way(frozenset({"path:/srv/x", "unit:a"}), Key("File", "new"), leaving) == [
        "File/a"
    ]
    assert in_the_way(frozenset(), Key("File", "new"), leaving) == []
    assert in_the_way(frozenset({"path:/srv/x"}), Key("File", "new"), leaving, [A]) == []


TABLE: dict[str, tuple[list[OwnershipRecord], dict[str, list[str]]]] = {
    "alone": ([record("a", "path:/a")], {"a": []}),
    "needed": ([record("a"), record("b", needs=("File/a",))], {"a": ["File/b"], "b": []}),
    "directory": ([record("d", "path:/d"), record("x", "path:/d/x")], {"d": ["File/x"], "x": []}),
    "no more than a prefix": (
        [record("d", "path:/d"), record("x", "path:/dx")],
        {"d": [], "x": []},
    ),
    "no path": ([record("d", "unit:d"), record("x", "unit:d/x")], {"d": [], "x": []}),
    "both, once": (
        [record("d", "path:/d"), record("x", "path:/d/x", needs=("File/d",))],
        {"d": ["File/x"], "x": []},
    ),
    "a directory after its file": (
        [record("d", "path:/d", needs=("File/x",)), record("x", "path:/d/x")],
        {"d": ["File/x"], "x": []},
    ),
    "the same with one between": (
        [
            record("d", "path:/d", needs=("File/u",)),
            record("u", needs=("File/x",)),
            record("x", "path:/d/e/x"),
        ],
        {"d": ["File/x"], "u": [], "x": []},
    ),
    "needs of what stays": ([record("b", needs=("File/stays",))], {"b": []}),
    "beside a circle": (
        [
            record("d", "path:/d", needs=("File/x",)),
            record("x", "path:/d/x"),
            record("y"),
            record("z", needs=("File/y",)),
        ],
        {"y": ["File/z"], "z": []},
    ),
}


@pytest.mark.parametrize(("leaving", "first"), TABLE.values(), ids=TABLE)
def test_what_must_be_gone_first(
    leaving: list[OwnershipRecord], first: dict[str, list[str]]
) -> None:
    by_name = {entry.name: entry for entry in leaving}
    assert {name: outlives(by_name[name], Leaving(leaving)) for name in first} == first


PATHS = st.sampled_from(["/d", "/d/e", "/d/e/f", "/g", "/g/h", "/de"])
NAMES = st.sampled_from("abcdef")


@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(NAMES, st.tuples(st.none() | PATHS, st.lists(NAMES, max_size=3)), max_size=6)
)
def test_everything_that_leaves_is_gone_in_the_end(
    drawn: dict[str, tuple[str | None, list[str]]],
) -> None:
    """Whatever needs or lies in what: nothing waits for ever, and no directory goes before what is
    inside it.
    """
    taken: set[str] = set()
    leaving = []
    for name, (path, needs) in drawn.items():
        claims = [f"path:{path}"] if path and path not in taken else []
        taken |= {path} if path else set()
        leaving.append(
            record(name, *claims, needs=tuple(f"File/{need}" for need in needs if need != name))
        )
    while leaving:
        free = [entry for entry in leaving if not outlives(entry, Leaving(leaving))]
        assert free
        for entry in free:
            for claim in entry.claims:
                assert not any(
                    other.startswith(claim + "/") for one in leaving for other in one.claims
                )
        leaving = [entry for entry in leaving if entry not in free]


def test_what_leaves_is_a_sequence() -> None:
    records = [record("a"), record("b")]
    assert Leaving(records)[0] is records[0]
    assert list(Leaving(records)[1:]) == records[1:]
