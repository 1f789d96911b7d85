"""Every outcome of waiting, from what a status says; an older verdict is not taken for this
one's.
"""

from __future__ import annotations

from typing import Any

import pytest

from harmony_fleet.errors import ExitCode, worst
from harmony_fleet.observe.wait import Target, judge, target_of, unsettled
from scores.status import DeploymentStatus
from tests.unit.fleet.build import KEY, OURS, THEIRS, file, resource, status, wire

TARGET = Target(KEY, OURS, 3, answered=9)
REMOVAL = Target(KEY, OURS, 3, removed=True, answered=9)
ANY_REMOVAL = Target(KEY, "", 0, removed=True)


@pytest.mark.parametrize(
    ("told", "code"),
    [
        (None, None),
        (status("Converged"), 0),
        (status("Converged", generation=2), None),
        (status("Progressing"), None),
        (status("Degraded"), None),
        (status("Converged", generation=4), 3),
        (status("Failed", resources={"File/a": resource("Failed")}), 1),
        (status("Failed", generation=2, resources={"File/a": resource("Failed")}), None),
        (status("Degraded", resources={"File/a": resource("Blocked", "OwnershipConflict")}), 5),
        (status("Degraded", resources={"File/a": resource("Blocked", "PodmanUnreachable")}), None),
        (status("Rejected", generation=2, rejected=(3, "Invalid")), 1),
        (status("Rejected", generation=2, rejected=(3, "KindNotAllowed")), 5),
        (status("Rejected", generation=2, rejected=(3, "OwnedByAnotherDeployment")), 5),
        (status("Rejected", generation=3, rejected=(3, "GenerationReused")), 3),
        (status("Held", generation=2, rejected=(3, "PruneGuard")), 5),
        (status("Fenced", lineage=THEIRS, generation=7, rejected=(3, "LineageChanged")), 3),
        (status("Fenced", generation=7, rejected=(3, "StaleGeneration")), 3),
        (status("Rejected", generation=None, lineage=None, rejected=(3, "Invalid")), 1),
        (status("Rejected", generation=2, rejected=(2, "Invalid")), None),
        (status("Held", generation=2, reason="DesiredStateMissing"), None),
        (status("Held", reason="DesiredStateMissing"), None),
        (status("Removed"), 1),
        (status("Removing"), 1),
        (status("Removed", generation=2), None),
        (status("Converged", lineage=THEIRS), None),
    ],
)
def test_after_an_apply(told: DeploymentStatus | None, code: int | None) -> None:
    assert judge(TARGET, told, 10).exit_code == code


@pytest.mark.parametrize(
    ("told", "revision", "code"),
    [
        (status("Held", generation=2, reason="PruneGuard"), 9, None),
        (status("Held", generation=2, reason="PruneGuard"), 10, 5),
        (status("Fenced", generation=2, reason="StaleGeneration"), 9, None),
        (status("Rejected", generation=2, reason="NotJson", rejected=(None, "NotJson")), 9, None),
        (status("Rejected", generation=2, reason="NotJson", rejected=(None, "NotJson")), 10, 1),
    ],
)
def test_a_verdict_without_a_generation_counts_when_it_is_newer(
    told: DeploymentStatus, revision: int, code: int | None
) -> None:
    assert judge(TARGET, told, revision).exit_code == code


@pytest.mark.parametrize(
    ("phase", "code"), [("Removed", 0), ("Removing", None), ("Converged", None), ("Degraded", None)]
)
def test_after_a_delete(phase: Any, code: int | None) -> None:
    assert judge(REMOVAL, status(phase), 10).exit_code == code
    assert judge(ANY_REMOVAL, status(phase, generation=8, lineage=THEIRS), 10).exit_code == code


def test_a_failure_of_an_older_spec_is_not_this_one_s() -> None:
    new = wire(file("a", "new"))
    old = resource("Failed", spec=file("a", "old").spec_digest())
    assert judge(target_of(new), status("Failed", resources={"File/a": old}), 1).exit_code is None
    now = resource("Failed", spec=file("a", "new").spec_digest())
    assert judge(target_of(new), status("Failed", resources={"File/a": now}), 1).exit_code == 1
    blocked = resource("Blocked", "OwnershipConflict", spec=file("a", "old").spec_digest())
    assert (
        judge(target_of(new), status("Degraded", resources={"File/a": blocked}), 1).exit_code
        is None
    )


def test_a_refusal_says_what_to_do() -> None:
    assert "--take-over" in judge(TARGET, status("Fenced", rejected=(3, "LineageChanged")), 1).hint
    assert (
        "--allow-prune"
        in judge(TARGET, status("Held", generation=2, rejected=(3, "PruneGuard")), 1).hint
    )
    conflict = status("Degraded", resources={"File/a": resource("Blocked", "OwnershipConflict")})
    assert "adopt" in judge(TARGET, conflict, 1).hint


def test_unsettled_are_those_not_ready_or_completed() -> None:
    phases = {"File/a": "Ready", "File/b": "Completed", "File/d": "Unknown", "File/c": "Pending"}
    told = status("Degraded", resources={key: resource(phase) for key, phase in phases.items()})
    assert [key for key, _ in unsettled(told)] == ["File/c", "File/d"]
    assert unsettled(None) == []


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([], 0),
        ([0, 0], 0),
        ([0, 1], 1),
        ([1, 4], 4),
        ([4, 5], 5),
        ([5, 3, 1], 3),
        ([2, 0], 2),
        ([2, 1], 1),
    ],
)
def test_one_code_for_several_devices(codes: list[int], code: int) -> None:
    assert worst(ExitCode(item) for item in codes) == code
