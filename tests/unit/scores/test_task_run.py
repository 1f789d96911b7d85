"""TaskRun: its bytes, and what is none. How a run goes on is tested with
`harmony_fleet.rollout.runs`.
"""

from __future__ import annotations

from typing import Any

import pytest

from scores.canonical import canonical, read
from scores.manifest import InvalidManifest, validate
from scores.task_run import TaskRun

TARGET = {
    "device": "pi-01",
    "attempt_id": "3f2a.pi-01",
    "wave": 1,
    "state": "complete",
    "phase": "complete",
    "reason": "",
    "boot_id_before": "a",
    "boot_id_after": "b",
    "completed_at": "2026-11-29T17:09:12.345Z",
    "upgraded": 12,
}
RUN = {
    "api": "harmony/v1",
    "run_uid": "3f2a",
    "operation": "AptFullUpgradeV1",
    "lineage": "00000000-0000-4000-8000-000000000001",
    "deployment": "upgrade-3f2a",
    "schedule": None,
    "created_at": "2026-11-29T17:00:00.000Z",
    "deadline": "2026-11-29T19:00:00.000Z",
    "max_unavailable": 2,
    "canary": 1,
    "cancelled": False,
    "phase": "Running",
    "reason": "",
    "targets": [TARGET],
}


def test_it_is_written_whole_and_read_back_to_the_byte() -> None:
    data = canonical(RUN)
    assert validate(TaskRun, read(data, len(data))).canonical() == data
    short = {
        name: RUN[name] for name in ("run_uid", "lineage", "deployment", "created_at", "deadline")
    }
    bare = validate(
        TaskRun,
        {**short, "max_unavailable": 1, "targets": [{"device": "a", "attempt_id": "b", "wave": 1}]},
    )
    assert set(bare.wire()) == set(RUN)
    assert set(bare.wire()["targets"][0]) == set(TARGET)


@pytest.mark.parametrize(
    ("change", "field", "code"),
    [
        ({"extra": 1}, "extra", "UnknownField"),
        ({"operation": "Shell"}, "operation", "NotAllowed"),
        ({"deadline": "soon"}, "deadline", "InvalidTime"),
        ({"max_unavailable": 0}, "max_unavailable", "OutOfRange"),
        ({"targets": []}, "targets", "TooFew"),
        ({"targets": [{**TARGET, "wave": 2}]}, "", "WaveMissing"),
        (
            {"targets": [TARGET, {**TARGET, "attempt_id": "other"}]},
            "targets[1].device",
            "DuplicateTarget",
        ),
        (
            {"targets": [TARGET, {**TARGET, "device": "pi-02"}]},
            "targets[1].attempt_id",
            "DuplicateTarget",
        ),
        ({"targets": [{**TARGET, "state": "lost"}]}, "targets[0].state", "NotAllowed"),
    ],
)
def test_what_is_none(change: dict[str, Any], field: str, code: str) -> None:
    with pytest.raises(InvalidManifest) as caught:
        validate(TaskRun, {**RUN, **change})
    assert [(error.field, error.code) for error in caught.value.errors] == [(field, code)]
