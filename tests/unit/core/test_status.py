"""Folds: an outcome becomes a resource's status, and the resources' become their deployment's."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.status import (
    MAX_BYTES,
    MAX_MESSAGE,
    Enforced,
    Outcome,
    Texts,
    bounded,
    deployment_phase,
    deployment_status,
    encode,
    resource_status,
)
from scores.manifest import MAX_MANIFEST, FieldError
from scores.status import SETTLED, DeploymentPhase, Drift, FileDetail, ResourcePhase, ResourceStatus
from tests.strategies import LINEAGE
from tests.unit.core.make import DIGEST, LATER, NOW, OTHER, resource

ENFORCED = Enforced(LINEAGE, 3, DIGEST, removed=False)
GONE = Enforced(LINEAGE, 4, DIGEST, removed=True)
DETAIL = FileDetail(state="PresentAt", mode="0644")
DRIFT = Drift(count=1, fields=["mode"], first_seen=NOW, last_seen=NOW, action="repaired")
PHASES: tuple[ResourcePhase, ...] = get_args(ResourcePhase)


def folded(enforced: Enforced | None, kept: NotAccepted | None = None, /, **resources: Any) -> Any:
    return deployment_status(
        "pi-01", "web", enforced, kept, {f"File/{name}": one for name, one in resources.items()}
    )


# -- one resource


def test_since_stays_while_the_phase_and_the_spec_do() -> None:
    old = resource("Ready")
    assert resource_status(old, Outcome("Ready"), 1, DIGEST, LATER).since == NOW
    assert resource_status(old, Outcome("Degraded", "X"), 1, DIGEST, LATER).since == LATER
    assert resource_status(old, Outcome("Ready"), 2, OTHER, LATER).since == LATER
    assert resource_status(None, Outcome("Ready"), 1, DIGEST, LATER).since == LATER


def test_a_status_says_what_the_outcome_does() -> None:
    status = resource_status(
        None, Outcome("Degraded", "NoSpace", "full", DETAIL, DRIFT), 7, DIGEST, NOW
    )
    assert status == ResourceStatus(
        phase="Degraded",
        reason="NoSpace",
        message="full",
        generation=7,
        since=NOW,
        spec_digest=DIGEST,
        drift=DRIFT,
        status=DETAIL,
    )


def test_a_failed_look_keeps_the_last_known_detail() -> None:
    old = resource("Ready", status=DETAIL)
    assert resource_status(old, Outcome("Unknown", "Timeout"), 1, DIGEST, LATER).status == DETAIL
    assert resource_status(None, Outcome("Unknown", "Timeout"), 1, DIGEST, LATER).status is None
    assert resource_status(old, Outcome("Failed", "X"), 1, DIGEST, LATER).status is None
    other = FileDetail(state="Absent")
    assert resource_status(old, Outcome("Unknown", detail=other), 1, DIGEST, LATER).status == other


def test_a_message_is_cut() -> None:
    status = resource_status(None, Outcome("Failed", "X", "m" * 10_000), 1, DIGEST, NOW)
    assert len(status.message) == MAX_MESSAGE


# -- a deployment

TABLE: dict[str, tuple[list[ResourcePhase], DeploymentPhase, DeploymentPhase]] = {
    "nothing": ([], "Converged", "Removed"),
    "ready": (["Ready", "Completed"], "Converged", "Removing"),
    "pending": (["Ready", "Pending"], "Progressing", "Removing"),
    "progressing": (["Progressing"], "Progressing", "Removing"),
    "removing": (["Ready", "Removing", "Pending"], "Progressing", "Removing"),
    "degraded": (["Progressing", "Degraded"], "Degraded", "Removing"),
    "unknown": (["Removing", "Unknown"], "Degraded", "Removing"),
    "blocked": (["Degraded", "Blocked"], "Degraded", "Removing"),
    "failed": (["Blocked", "Failed", "Ready"], "Failed", "Removing"),
}


@pytest.mark.parametrize(("phases", "wanted", "removed"), TABLE.values(), ids=TABLE)
def test_phases(
    phases: list[ResourcePhase], wanted: DeploymentPhase, removed: DeploymentPhase
) -> None:
    resources = {f"r{index}": resource(phase) for index, phase in enumerate(phases)}
    assert folded(ENFORCED, **resources).phase == wanted
    assert folded(GONE, **resources).phase == removed


def test_the_worst_is_told_and_how_many_are_behind() -> None:
    status = folded(
        ENFORCED,
        a=resource("Ready"),
        b=resource("Pending", reason="WaitsFor", message="waits for File/c"),
        c=resource("Failed", reason="NoUser", message="cannot find the user"),
        d=resource("Blocked", reason="OwnershipConflict"),
    )
    assert (status.phase, status.reason) == ("Failed", "NoUser")
    assert status.message == "3 of 4 not settled; File/c: cannot find the user"
    assert (
        folded(ENFORCED, a=resource("Blocked", reason="X")).message
        == "1 of 1 not settled; File/a: Blocked"
    )


def test_nothing_is_said_of_what_is_settled() -> None:
    status = folded(ENFORCED, a=resource("Ready"), b=resource("Completed"))
    assert (status.phase, status.reason, status.message) == ("Converged", "", "")
    assert (status.lineage, status.generation, status.digest) == (LINEAGE, 3, DIGEST)


def test_what_was_not_accepted_is_told_first_and_the_enforced_one_stays() -> None:
    kept = NotAccepted(
        "Rejected", "Invalid", "bad", (FieldError("scores[0].path", "PathNotNormal"),), 4
    )
    status = folded(ENFORCED, kept, a=resource("Ready"))
    assert (status.phase, status.reason, status.message) == ("Rejected", "Invalid", "bad")
    assert (status.generation, status.digest) == (3, DIGEST)
    assert status.resources["File/a"].phase == "Ready"
    assert status.rejected.model_dump() == {
        "generation": 4,
        "reason": "Invalid",
        "errors": [{"field": "scores[0].path", "code": "PathNotNormal"}],
    }


def test_a_manifest_that_was_never_accepted_has_no_generation() -> None:
    status = folded(None, NotAccepted("Rejected", "NotJson", "x", (FieldError("", "NotJson"),)))
    assert (status.lineage, status.generation, status.digest) == (None, None, None)
    assert status.rejected.generation is None
    assert status.rejected.errors[0].code == "NotJson"


def test_a_key_that_is_gone_is_no_rejection() -> None:
    status = folded(
        ENFORCED, NotAccepted("Held", "DesiredStateMissing", "gone"), a=resource("Ready")
    )
    assert (status.phase, status.rejected) == ("Held", None)


@given(st.lists(st.sampled_from(PHASES), max_size=6), st.booleans())
def test_converged_is_all_settled(phases: list[ResourcePhase], removed: bool) -> None:
    enforced = GONE if removed else ENFORCED
    status = folded(
        enforced, **{f"r{index}": resource(phase) for index, phase in enumerate(phases)}
    )
    assert (status.phase == "Converged") == (not removed and SETTLED.issuperset(phases))
    assert (status.phase == "Removed") == (removed and not phases)
    assert (status.message == "") == SETTLED.issuperset(phases)


@given(st.permutations("abcdef"), st.lists(st.sampled_from(PHASES), min_size=6, max_size=6))
def test_order_says_nothing(order: list[str], phases: list[ResourcePhase]) -> None:
    """The same resources give the same bytes: a status that didn't change isn't written."""
    resources = {name: resource(phase) for name, phase in zip("abcdef", phases, strict=True)}
    shuffled = {name: resources[name] for name in order}
    assert folded(ENFORCED, **resources).canonical() == folded(ENFORCED, **shuffled).canonical()


@given(st.sampled_from(["m", "é", "\U0001f600"]))
def test_a_thousand_that_fail_fit_into_one_value(letter: str) -> None:
    detail = FileDetail(
        state="PresentAt", digest=DIGEST, mode="0644", owner="o" * 32, group="g" * 32
    )
    drift = Drift(
        count=10**6,
        fields=["content", "mode", "owner"],
        first_seen=NOW,
        last_seen=NOW,
        action="contended",
    )
    one = resource(
        "Degraded",
        reason="OwnershipConflict",
        message=letter * MAX_MESSAGE,
        status=detail,
        drift=drift,
        generation=2**53 - 1,
    )
    status = folded(ENFORCED, **{f"{index:0200}": one for index in range(1000)})
    assert len(status.canonical()) < MAX_MANIFEST
    assert all(resource.message for resource in status.resources.values())


def test_a_few_messages_are_whole() -> None:
    one = resource("Degraded", message="m" * MAX_MESSAGE)
    status = folded(ENFORCED, **{str(index): one for index in range(100)})
    assert {resource.message for resource in status.resources.values()} == {one.message}


def test_the_phase_alone_is_that_of_the_whole_status() -> None:
    kept = NotAccepted("Held", "PruneGuard", "x")
    assert deployment_phase(ENFORCED, kept, ["Ready"]) == folded(ENFORCED, kept).phase == "Held"


def test_many_long_messages_are_cut_at_a_letter() -> None:
    one = resource("Degraded", message="\u00e9" * MAX_MESSAGE)
    status = folded(ENFORCED, **{str(index): one for index in range(1000)})
    assert {len(one.message) for one in status.resources.values()} < {*range(MAX_MESSAGE)}
    assert len(status.canonical()) < MAX_MANIFEST


def test_what_stayed_is_not_encoded_again() -> None:
    known: Texts = {}
    status = folded(ENFORCED, a=resource("Ready"), b=resource("Pending"))
    assert encode(status, known) == status.canonical()
    text = known["File/a"]
    resources = {**status.resources, "File/b": resource("Ready")}
    later = status.model_copy(update={"resources": resources})
    assert encode(later, known) == later.canonical()
    assert known["File/a"] is text


def test_a_status_that_is_too_large_keeps_phases_and_reasons() -> None:
    one = resource("Degraded", reason="NoSpace", message="m", status=DETAIL)
    small = folded(ENFORCED, a=one)
    assert bounded(small, {}) == small.canonical()
    name = "n" * 250
    large = folded(ENFORCED, **{f"{name}{index}": one for index in range(3000)})
    assert len(encode(large, {})) > MAX_BYTES
    cut = large.model_validate_json(bounded(large, {})).resources
    assert {(one.phase, one.reason, one.message, one.status) for one in cut.values()} == {
        ("Degraded", "NoSpace", "", None)
    }
