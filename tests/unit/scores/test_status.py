"""What a device says of itself: every field is written, and how large it may become."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from scores.manifest import SCORE_TYPES
from scores.names import MAX_GENERATION
from scores.status import (
    SETTLED,
    Capabilities,
    ContainerDetail,
    DeploymentPhase,
    DeploymentStatus,
    Detail,
    DeviceInfo,
    Drift,
    FileDetail,
    Heartbeat,
    OsInfo,
    Rejection,
    ResourcePhase,
    ResourceStatus,
    UnitDetail,
    UpdaterInfo,
    UpgradeDetail,
)
from tests import strategies

NOW = "2026-11-29T17:00:00.000Z"
DIGEST = "sha256:" + "0" * 64


def test_a_status_as_the_contract_shows_it() -> None:
    detail = FileDetail(state="PresentAt", digest=DIGEST, mode="0644", owner="root", group="root")
    resource = ResourceStatus(
        phase="Ready", generation=3, since=NOW, spec_digest=DIGEST, status=detail
    )
    status = DeploymentStatus(
        device="pi-01",
        deployment="web",
        lineage=strategies.LINEAGE,
        generation=3,
        digest=DIGEST,
        phase="Converged",
        resources={"File/motd": resource},
    )
    assert json.loads(status.canonical()) == {
        "api": "harmony/v1",
        "device": "pi-01",
        "deployment": "web",
        "lineage": strategies.LINEAGE,
        "generation": 3,
        "digest": DIGEST,
        "phase": "Converged",
        "reason": "",
        "message": "",
        "resources": {
            "File/motd": {
                "phase": "Ready",
                "reason": "",
                "message": "",
                "generation": 3,
                "since": NOW,
                "spec_digest": DIGEST,
                "drift": None,
                "status": {
                    "kind": "File",
                    "state": "PresentAt",
                    "digest": DIGEST,
                    "mode": "0644",
                    "owner": "root",
                    "group": "root",
                },
            }
        },
        "rejected": None,
    }
    assert DeploymentStatus.model_validate_json(status.canonical()) == status


DETAILS: list[tuple[Any, set[str]]] = [
    (FileDetail(state="Absent"), {"kind", "state", "digest", "mode", "owner", "group"}),
    (
        UnitDetail(
            load_state="loaded",
            active_state="active",
            sub_state="running",
            unit_file_state="enabled",
        ),
        {
            "kind",
            "load_state",
            "active_state",
            "sub_state",
            "unit_file_state",
            "main_pid",
            "restarts",
            "since",
        }
        | {"condition", "ready"},
    ),
    (
        ContainerDetail(state="Running"),
        {"kind", "state", "id", "image_digest", "since", "restarts", "exit_code", "ready"},
    ),
    (
        UpgradeDetail(attemptId="a", runUid="r", deviceId="d", phase="blocked"),
        {
            "kind",
            "attemptId",
            "runUid",
            "deviceId",
            "phase",
            "reason",
            "message",
            "startedAt",
            "updatedAt",
        }
        | {"bootIdBefore", "bootIdAfter", "result"},
    ),
]


@pytest.mark.parametrize(("detail", "fields"), DETAILS, ids=[detail.kind for detail, _ in DETAILS])
def test_details_are_written_whole(detail: Any, fields: set[str]) -> None:
    assert set(detail.wire()) == fields
    resource = ResourceStatus(
        phase="Ready", generation=1, since=NOW, spec_digest=DIGEST, status=detail
    )
    assert ResourceStatus.model_validate_json(resource.canonical()).status == detail


def test_every_kind_has_a_detail() -> None:
    union = get_args(get_args(Detail)[0])
    assert {model.model_fields["kind"].default for model in union} == set(SCORE_TYPES)


def test_phases_of_the_contract() -> None:
    assert set(get_args(DeploymentPhase)) == set(
        "Converged Progressing Degraded Failed Held Fenced Rejected Removing Removed".split()  # noqa: SIM905
    )
    assert set(get_args(ResourcePhase)) == set(
        "Pending Progressing Ready Completed Degraded Failed Blocked Removing Unknown".split()  # noqa: SIM905
    )
    assert {"Ready", "Completed"} == SETTLED


def test_a_rejection_names_a_few_fields_at_most() -> None:
    with pytest.raises(ValidationError):
        Rejection(generation=1, reason="Invalid", errors=[{"field": "a", "code": "b"}] * 21)  # type: ignore[list-item]


def test_device_info_is_written_whole() -> None:
    info = DeviceInfo(
        device="pi-01",
        labels={"site": "home"},
        agent_version="1",
        boot_id="b",
        os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6.1"),
        kinds=["File"],
        capabilities=Capabilities(updater=UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"])),
    )
    wire = json.loads(info.canonical())
    assert set(wire) == {
        "api",
        "device",
        "labels",
        "agent_version",
        "boot_id",
        "os",
        "kinds",
        "capabilities",
    }
    assert wire["capabilities"] == {
        "systemd": None,
        "podman": None,
        "tmux": None,
        "updater": {"protocol": 1, "operations": ["AptFullUpgradeV1"]},
    }


COUNTS = st.integers(0, MAX_GENERATION)


@given(
    strategies.device_names(), COUNTS, COUNTS, COUNTS, COUNTS, st.sampled_from([True, False, None])
)
def test_a_heartbeat_is_at_most_256_bytes(
    device: str, seq: int, revision: int, a: int, b: int, clock: Any
) -> None:
    beat = Heartbeat(
        device=device,
        seq=seq,
        desired_revision=revision,
        oldest_unsettled_seconds=a,
        relist_age_seconds=b,
        clock_synchronized=clock,
    )
    assert len(beat.canonical()) <= 256


def test_the_largest_heartbeat() -> None:
    most = MAX_GENERATION
    beat = Heartbeat(
        device="d" * 63,
        seq=most,
        desired_revision=most,
        oldest_unsettled_seconds=most,
        relist_age_seconds=most,
        clock_synchronized=False,
    )
    assert len(beat.canonical()) == 244


@pytest.mark.parametrize("value", [-1, MAX_GENERATION + 1, 1.5])
def test_a_heartbeats_numbers_have_bounds(value: Any) -> None:
    with pytest.raises(ValidationError):
        Heartbeat(
            device="d",
            seq=value,
            desired_revision=0,
            oldest_unsettled_seconds=0,
            relist_age_seconds=0,
            clock_synchronized=None,
        )


def test_drift_is_one_of_three() -> None:
    with pytest.raises(ValidationError):
        Drift(count=1, fields=["mode"], first_seen=NOW, last_seen=NOW, action="ignored")  # type: ignore[arg-type]
