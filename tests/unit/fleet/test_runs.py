"""Upgrade runs, decided: waves, budgets, evidence, deadlines. Tables and Hypothesis."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_fleet.errors import HarmonyError, Refused
from harmony_fleet.rollout.runs.advance import (
    ACTIVE,
    ENDED,
    FAILED,
    Evidence,
    advance,
    cancel,
    give_up,
)
from harmony_fleet.rollout.runs.plan import Request, due, freeze, manifest_of, request, split
from harmony_fleet.roster.model import Schedule
from scores.canonical import read
from scores.manifest import MAX_MANIFEST, InvalidManifest, validate
from scores.names import format_time
from scores.status import (
    DeploymentStatus,
    Rejection,
    ResourceStatus,
    UpdaterInfo,
    UpgradeDetail,
    UpgradeResult,
)
from scores.task_run import MAX_TARGETS, TaskRun, TaskTarget
from tests.unit.fleet.build import DIGEST, OURS, SINCE, device

START = datetime(2026, 11, 29, 18, tzinfo=UTC)
DEADLINE = START + timedelta(hours=2)
UID = "3f2a0000-0000-4000-8000-000000000001"
NO = Evidence()
IDLE = "NothingToUpgrade"


def after(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def run(*waves: int, **more: Any) -> TaskRun:
    """A run with one target a wave number."""
    targets = [
        TaskTarget(device=f"d{at}", attempt_id=f"{UID}.d{at}", wave=wave)
        for at, wave in enumerate(waves, 1)
    ]
    return TaskRun(
        run_uid=UID,
        lineage=OURS,
        deployment="upgrade-3f2a0000",
        created_at=format_time(START),
        deadline=format_time(DEADLINE),
        max_unavailable=2,
        targets=targets,
        **more,
    )


def told(
    name: str,
    phase: Any = None,
    *,
    at: float = 10,
    heard: float | None = None,
    resource: Any = "Progressing",
    reason: str = "",
    before: str | None = "a",
    back: str | None = "b",
    audit: tuple[str, ...] = (),
    upgraded: tuple[str, ...] = ("a", "b"),
    attempt: str = "",
    **status: Any,
) -> Evidence:
    """What a device says of its attempt; `phase` None: nothing of the updater's."""
    detail = None
    if phase is not None:
        detail = UpgradeDetail(
            attemptId=attempt or f"{UID}.{name}",
            runUid=UID,
            deviceId=name,
            phase=phase,
            reason=reason,
            bootIdBefore=before,
            bootIdAfter=back if phase == "complete" else None,
            result=UpgradeResult(upgraded=upgraded, dpkgAudit=audit)
            if phase == "complete"
            else None,
        )
    shown = ResourceStatus(
        phase=resource, reason=reason, generation=1, since=SINCE, spec_digest=DIGEST, status=detail
    )
    fields: dict[str, Any] = {
        "phase": "Progressing",
        "resources": {"SystemUpgrade/system": shown},
    } | status
    made = DeploymentStatus(
        device=name,
        deployment="upgrade-3f2a0000",
        lineage=OURS,
        generation=1,
        digest=DIGEST,
        **fields,
    )
    return Evidence(made, after(at), None if heard is None else after(heard))


def one(seen: Evidence, now: float = 20, state: str = "requested") -> TaskTarget:
    """The only target of a run after `seen`."""
    begun = run(1)
    begun = begun.model_copy(
        update={"targets": [begun.targets[0].model_copy(update={"state": state})]}
    )
    return advance(begun, {"d1": seen}, after(now)).targets[0]


@pytest.mark.parametrize(
    ("seen", "now", "state", "reason"),
    [
        (NO, 20, "requested", ""),
        (NO, 119, "requested", ""),
        (NO, 120, "failed", "DeadlineExceeded"),
        (told("d1"), 20, "requested", ""),
        (told("d1", "blocked"), 20, "upgrading", ""),
        (told("d1", "applying"), 20, "upgrading", ""),
        (told("d1", "rebooting"), 119, "upgrading", ""),
        (told("d1", "rebooting"), 120, "failed", "DeadlineExceeded"),
        (told("d1", "failed", reason="AptFailed"), 20, "failed", "AptFailed"),
        (told("d1", "repair-required", reason="Broken"), 20, "repair-required", "Broken"),
        (told("d1", resource="Failed", reason="UpgradeExpired"), 20, "failed", "UpgradeExpired"),
        (told("d1", resource="Blocked", reason="UpdaterUnavailable"), 20, "requested", ""),
        (told("d1", "complete"), 20, "complete", ""),
        (told("d1", "complete", heard=9), 20, "complete", ""),
        (told("d1", "complete", heard=10), 20, "complete", ""),
        (told("d1", "complete", heard=10.1), 20, "succeeded", ""),
        (told("d1", "complete", heard=10.1), 500, "succeeded", ""),
        (told("d1", "complete", heard=9), 120, "failed", "DeadlineExceeded"),
        (told("d1", "complete", at=119, heard=121), 121, "failed", "DeadlineExceeded"),
        (told("d1", "complete", at=121, heard=122), 122, "failed", "DeadlineExceeded"),
        (told("d1", "complete", back="a", heard=11), 20, "failed", "BootIdUnchanged"),
        (told("d1", "complete", back=None, heard=11), 20, "failed", "BootIdUnchanged"),
        (told("d1", "complete", before=None, heard=11), 20, "failed", "BootIdUnchanged"),
        (told("d1", "complete", back="", heard=11), 20, "failed", "BootIdUnchanged"),
        (
            told("d1", "complete", back=None, upgraded=(), reason=IDLE, heard=11),
            20,
            "succeeded",
            "",
        ),
        (told("d1", "complete", back=None, upgraded=(), heard=11), 20, "failed", "BootIdUnchanged"),
        (told("d1", "complete", back=None, reason=IDLE, heard=11), 20, "failed", "BootIdUnchanged"),
        (
            told("d1", "complete", audit=("broken",), heard=11),
            20,
            "repair-required",
            "PackagesUnhealthy",
        ),
        (told("d1", "complete", attempt="another", heard=11), 20, "requested", ""),
        (told("d1", resources={}), 20, "requested", ""),
        (Evidence(refused="MissingCapability"), 20, "failed", "MissingCapability"),
    ],
)
def test_evidence(seen: Evidence, now: float, state: str, reason: str) -> None:
    target = one(seen, now)
    assert (target.state, target.reason) == (state, reason)


@pytest.mark.parametrize(
    ("phase", "reason"), [("Rejected", "KindNotAllowed"), ("Fenced", "LineageChanged")]
)
def test_a_device_that_refuses_the_manifest_failed(phase: Any, reason: str) -> None:
    seen = told("d1", resources={}, rejected=Rejection(generation=1, reason=reason), phase=None)
    assert seen.status is not None
    status = seen.status.model_copy(update={"phase": phase})
    target = one(Evidence(status, after(10)))
    assert (target.state, target.reason) == ("failed", reason)


def test_what_is_complete_keeps_its_first_time() -> None:
    begun = advance(run(1), {}, after(1))
    seen = advance(begun, {"d1": told("d1", "complete", at=10)}, after(11))
    again = advance(seen, {"d1": told("d1", "complete", at=30, heard=20)}, after(31))
    assert seen.targets[0].completed_at == format_time(after(10))
    assert (again.targets[0].state, again.phase, again.targets[0].upgraded) == (
        "succeeded",
        "Succeeded",
        2,
    )


def states(made: TaskRun) -> list[str]:
    return [target.state for target in made.targets]


GOOD = {name: told(name, "complete", heard=11) for name in ("d1", "d2", "d3", "d4")}


def test_a_wave_begins_when_all_before_it_succeeded() -> None:
    made = advance(run(1, 1, 2), {}, after(1))
    assert states(made) == ["requested", "requested", "pending"]
    made = advance(made, {"d1": GOOD["d1"]}, after(20))
    assert states(made) == ["succeeded", "requested", "pending"]
    made = advance(made, {"d2": GOOD["d2"]}, after(20))
    assert states(made) == ["succeeded", "succeeded", "requested"]
    assert advance(made, {"d3": GOOD["d3"]}, after(20)).phase == "Succeeded"


def test_a_failure_stops_the_next_wave_and_lets_its_own_end() -> None:
    made = advance(run(1, 1, 2), {}, after(1))
    made = advance(made, {"d1": told("d1", "failed", reason="X")}, after(20))
    assert (states(made), made.phase) == (["failed", "requested", "skipped"], "Running")
    made = advance(made, {"d2": GOOD["d2"]}, after(20))
    assert (states(made), made.phase, made.reason) == (
        ["failed", "succeeded", "skipped"],
        "Failed",
        "X",
    )
    assert made.targets[2].reason == "EarlierWaveFailed"


def test_cancelling_stops_only_what_has_not_begun() -> None:
    made = cancel(advance(run(1, 2), {}, after(1)))
    made = advance(made, {"d1": heard(2)}, after(2))
    assert (states(made), made.phase) == (["requested", "skipped"], "Running")
    assert advance(made, GOOD, after(20)).phase == "Cancelled"
    assert advance(cancel(run(1)), {}, after(1)).phase == "Cancelled"
    last = cancel(advance(run(1), {}, after(1)))
    assert advance(last, GOOD, after(20)).phase == "Succeeded"


def heard(at: float, **more: Any) -> Evidence:
    """A device that is heard, and says nothing of the run."""
    return Evidence(heard_at=after(at), **more)


@pytest.mark.parametrize(
    ("seen", "now", "state", "reason"),
    [
        (heard(20), 20, "requested", ""),
        (heard(20, withdrawn=True), 20, "skipped", "Withdrawn"),
        (heard(19), 20, "skipped", "Withdrawn"),
        (NO, 20, "skipped", "Withdrawn"),
        (heard(120), 120, "skipped", "Withdrawn"),
        (told("d1", "applying", heard=20), 20, "upgrading", ""),
        (told("d1", "applying"), 20, "upgrading", ""),
        (told("d1", "failed", reason="AptFailed"), 20, "failed", "AptFailed"),
    ],
)
def test_what_becomes_of_a_request_that_is_taken_back(
    seen: Evidence, now: float, state: str, reason: str
) -> None:
    """Only what no device has begun is given up."""
    begun = advance(run(1, 2), {}, after(1))
    after_it = advance(cancel(begun), {"d1": seen}, after(now))
    assert (after_it.targets[0].state, after_it.targets[0].reason) == (state, reason)
    assert after_it.targets[1].reason == ("EarlierWaveFailed" if state == "failed" else "Cancelled")


def test_who_falls_silent_later_is_unavailable() -> None:
    """Two may be away. One that succeeded is silent, so of the second wave one is asked."""
    made = advance(run(1, 2, 2), {name: heard(1) for name in NAMES}, after(1))
    away = {"d1": GOOD["d1"], "d2": heard(20), "d3": heard(20)}
    made = advance(made, away, after(20))
    assert states(made) == ["succeeded", "requested", "pending"]
    assert made.targets[2].reason == "BudgetSpent"
    back = away | {"d1": heard(21)}
    made = advance(made, back, after(21))
    assert states(made) == ["succeeded", "requested", "requested"]
    assert made.targets[2].reason == ""


def test_who_is_silent_anyway_costs_nothing_more() -> None:
    made = advance(run(1, 1, 1), {"d1": heard(1)}, after(1))
    assert states(made) == ["pending", "requested", "requested"]


def test_a_run_that_has_not_begun_asks_nobody() -> None:
    made = run(1, begun=False)
    assert advance(made, GOOD, after(20)) == made
    assert give_up(made).phase == "Failed"
    assert "begun" in made.wire()
    assert "begun" not in run(1).wire()


def test_nothing_begins_after_the_deadline() -> None:
    made = advance(run(1, 2), {}, after(200))
    assert (states(made), made.phase, made.reason) == (
        ["skipped", "skipped"],
        "Failed",
        "DeadlineExceeded",
    )


NAMES = ("d1", "d2", "d3", "d4")
PHASES = (
    None,
    "blocked",
    "preflight",
    "applying",
    "rebooting",
    "verifying",
    "complete",
    "failed",
    "repair-required",
)
EVIDENCE = st.builds(
    told,
    st.sampled_from(NAMES),
    st.sampled_from(PHASES),
    at=st.floats(1, 130),
    heard=st.none() | st.floats(1, 130),
    back=st.sampled_from(["a", "b", None]),
    resource=st.sampled_from(["Progressing", "Failed", "Blocked"]),
)
STEPS = st.lists(
    st.tuples(st.lists(EVIDENCE, max_size=4), st.floats(0.1, 30), st.booleans()), max_size=15
)


@settings(deadline=None)
@given(st.sampled_from([(1,), (1, 1), (1, 2), (1, 2, 2), (1, 1, 2, 3)]), STEPS)
def test_whatever_comes_it_is_sound(waves: tuple[int, ...], steps: Any) -> None:
    made, now = run(*waves), 0.0
    for seen, minutes, stop in steps:
        now += minutes
        before = made
        known = {item.status.device: item for item in seen}
        made = advance(cancel(made) if stop else made, known, after(now))
        assert advance(made, known, after(now)) == advance(
            advance(made, known, after(now)), known, after(now)
        )
        for old, new in zip(before.targets, made.targets, strict=True):
            assert old.state not in ENDED or new == old
            assert not (old.state in ACTIVE and new.state == "pending")
            if old.state in ACTIVE and new.state == "skipped":
                assert (old.state, new.reason, made.cancelled) == ("requested", "Withdrawn", True)
            assert new.state != "succeeded" or (
                new.completed_at and new.boot_id_before != new.boot_id_after
            )
        asked = [
            new
            for old, new in zip(before.targets, made.targets, strict=True)
            if (old.state, new.state) == ("pending", "requested")
            and not known.get(new.device, NO).silent(after(now))
        ]
        away = [
            target
            for target in made.targets
            if target.state in ACTIVE or known.get(target.device, NO).silent(after(now))
        ]
        assert not asked or len(away) <= made.max_unavailable
        begun = [target for target in made.targets if target.state not in ("pending", "skipped")]
        for target in begun:
            earlier = [other.state for other in made.targets if other.wave < target.wave]
            assert set(earlier) <= {"succeeded"}
        active = [target for target in made.targets if target.state in ACTIVE]
        assert len({target.wave for target in active}) <= 1
        if made.phase == "Succeeded":
            assert set(states(made)) == {"succeeded"}
        if made.phase != "Running":
            assert set(states(made)) <= ENDED
            assert advance(made, known, after(now + 999)) == made
            assert (made.phase == "Failed") == bool(
                set(states(made)) & FAILED or made.reason == "DeadlineExceeded"
            )
    assert now < 120 or advance(made, {}, after(now)).phase != "Running"


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 5), st.integers(-1, 8), st.none() | st.integers(0, 8))
def test_waves_keep_the_budget_or_are_refused(
    heard: int, silent: int, budget: int, canary: int | None
) -> None:
    up, down = [f"u{at}" for at in range(heard)], [f"s{at}" for at in range(silent)]
    room = budget - silent
    never = budget < 1 or silent > budget or (heard > 0 and room < 1)
    if never or (canary is not None and not 1 <= canary <= max(room, 1)):
        with pytest.raises(Refused) as caught:
            split(up, down, budget, canary)
        assert (caught.value.code, bool(caught.value.hint)) == ("BudgetNeverMet", True)
        return
    waves = split(up, down, budget, canary)
    assert [name for wave in waves for name in wave] == up + down
    for wave in waves:
        assert 1 <= len(wave) <= budget
        assert len(set(wave) | set(down)) <= budget
    if canary and heard:
        assert len(waves[0]) == min(canary, heard)


def able(name: str) -> Any:
    made = device(
        kinds=("SystemUpgrade",), updater=UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"])
    )
    from dataclasses import replace

    return replace(made, name=name, heard=START)


def frozen(*devices: Any, active: Any = (), **more: Any) -> TaskRun:
    return freeze(
        Request(UID, OURS, timedelta(hours=2), more.pop("budget", 2), **more),
        devices,
        active,
        START,
    )


def test_a_plan_is_frozen_and_its_manifests_are_the_same_each_time() -> None:
    made = frozen(able("a"), able("b"), able("c"), canary=1)
    assert [(target.device, target.wave, target.attempt_id) for target in made.targets] == [
        ("a", 1, f"{UID}.a"), ("b", 2, f"{UID}.b"), ("c", 2, f"{UID}.c"),
    ]  # fmt: skip
    assert (made.deployment, made.deadline) == ("upgrade-3f2a0000", format_time(DEADLINE))
    first = manifest_of(made, made.targets[0])
    assert first == manifest_of(
        validate(TaskRun, read(made.canonical(), MAX_MANIFEST)), made.targets[0]
    )
    assert first.scores[0].wire() == {
        "kind": "SystemUpgrade", "name": "system", "attempt_id": f"{UID}.a", "run_uid": UID,
        "expires_at": "2026-11-29T20:00:00.000Z",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("work", "code"),
    [
        (frozen, "NoDevice"),
        (lambda: frozen(able("a"), device()), "MissingCapability"),
        (lambda: frozen(device(kinds=("SystemUpgrade",))), "MissingCapability"),
        (lambda: frozen(device(known=False)), "MissingCapability"),
        (lambda: frozen(able("a"), budget=0), "BudgetNeverMet"),
        (lambda: frozen(able("a"), able("d1"), active=[run(1)]), "RunActive"),
        (lambda: frozen(*[able(f"d{at}") for at in range(MAX_TARGETS + 1)]), "TooManyTargets"),
    ],
)
def test_what_is_not_frozen(work: Any, code: str) -> None:
    with pytest.raises(HarmonyError) as caught:
        work()
    assert caught.value.code == code
    assert caught.value.hint


def test_the_largest_run_fits_a_value() -> None:
    longest = "d" * 63
    made = frozen(
        *[able(f"{longest[:-4]}{at:04}") for at in range(MAX_TARGETS)], budget=MAX_TARGETS
    )
    full = [
        target.model_copy(update={"boot_id_before": "b" * 36, "boot_id_after": "c" * 36, "reason": "r" * 80,
                                  "completed_at": SINCE, "phase": "repair-required", "state": "repair-required"})
        for target in made.targets
    ]  # fmt: skip
    assert len(made.model_copy(update={"targets": full}).canonical()) < MAX_MANIFEST


@pytest.mark.parametrize(
    "targets",
    [
        [],
        [{"device": "a", "attempt_id": "x", "wave": 2}],
        [
            {"device": "a", "attempt_id": "x", "wave": 1},
            {"device": "a", "attempt_id": "y", "wave": 1},
        ],
        [
            {"device": "a", "attempt_id": "x", "wave": 1},
            {"device": "b", "attempt_id": "x", "wave": 1},
        ],
        [{"device": "a", "attempt_id": "x", "wave": 1, "state": "lost"}],
    ],
)
def test_what_is_no_run(targets: Any) -> None:
    with pytest.raises(InvalidManifest):
        validate(TaskRun, {**run(1).wire(), "targets": targets})


LONG_AGO = START - timedelta(days=30)


def schedule(cron: str, **more: Any) -> Schedule:
    fields = {"name": "n", "cron": cron, "deadline": "2h", "max_unavailable": 1}
    return Schedule.model_validate({**fields, **more})


@pytest.mark.parametrize(
    ("cron", "now", "at"),
    [
        ("0 18 * * *", START, START),
        ("0 18 * * *", after(14), START),
        ("0 18 * * *", after(16), None),
        ("0 18 * * *", START - timedelta(seconds=1), None),
        ("*/5 * * * *", after(7), after(5)),
        ("0 18 29 2 *", START, None),
        ("0 18 * * SUN", START, START),
    ],
)
def test_when_a_schedule_is_due(cron: str, now: datetime, at: datetime | None) -> None:
    assert due(schedule(cron), now, LONG_AGO) == at
    assert due(schedule(cron, enabled=False), now, LONG_AGO) is None


@pytest.mark.parametrize(
    ("made", "at"),
    [
        (START - timedelta(seconds=1), START),
        (START, START),
        (START + timedelta(seconds=1), None),
        (after(10), None),
    ],
)
def test_a_schedule_is_never_due_for_a_time_before_it_was_made(
    made: datetime, at: datetime | None
) -> None:
    assert due(schedule("0 18 * * *"), after(10), made) == at


@pytest.mark.parametrize(
    ("within", "now", "at"),
    [
        ("1m", after(1), START),
        ("1m", after(2), None),
        ("2h", after(119), START),
        ("2h", after(121), None),
    ],
)
def test_a_schedule_says_how_late_a_run_may_begin(
    within: str, now: datetime, at: datetime | None
) -> None:
    assert due(schedule("0 18 * * *", start_within=within), now, LONG_AGO) == at


def test_a_scheduled_run_has_one_id_everywhere() -> None:
    made = request(schedule("0 18 * * *"), OURS, START)
    assert made == request(schedule("0 18 * * *"), OURS, START)
    assert made.run_uid != request(schedule("0 18 * * *", name="m"), OURS, START).run_uid
    assert made.run_uid != request(schedule("0 18 * * *"), OURS, after(15)).run_uid
    assert (made.deadline, made.schedule) == (timedelta(hours=2), "n")
