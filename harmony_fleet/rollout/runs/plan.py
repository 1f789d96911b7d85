"""Freeze a run: which devices, in which waves, with which attempts; or why it can't be. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from harmony_fleet.errors import InvalidInput, Refused
from harmony_fleet.manifests.duration import seconds
from harmony_fleet.observe.capabilities import kind_problem
from harmony_fleet.observe.state import Device
from harmony_fleet.roster.model import RUN_PREFIX, Schedule
from scores.manifest import FieldError, Manifest
from scores.names import format_time
from scores.schedule import times_before
from scores.system_upgrade import SystemUpgrade
from scores.task_run import MAX_TARGETS, TaskRun, TaskTarget

RESOURCE: Final = "system"
_SHORT: Final = 8


@dataclass(frozen=True, slots=True)
class Request:
    """Request of an operator or a schedule."""

    run_uid: str
    lineage: str
    deadline: timedelta
    max_unavailable: int
    canary: int | None = None
    schedule: str | None = None


def freeze(
    request: Request, devices: Sequence[Device], active: Sequence[TaskRun], now: datetime
) -> TaskRun:
    """The run, not begun. `now` is the server's time. Raises InvalidInput or Refused."""
    if not devices:
        raise InvalidInput(
            "NoDevice",
            "cannot start a run: no enabled device is selected",
            "see who has which labels: harmony fleet device list, and without a roster harmony devices",
        )
    if len(devices) > MAX_TARGETS:
        raise InvalidInput(
            "TooManyTargets",
            f"cannot start a run of more than {MAX_TARGETS} devices",
            "select fewer",
        )
    _check_capable(devices)
    _check_free(devices, active)
    heard = [device.name for device in devices if not device.silent(now)]
    silent = [device.name for device in devices if device.silent(now)]
    waves = split(heard, silent, request.max_unavailable, request.canary)
    targets = [
        TaskTarget(device=name, attempt_id=f"{request.run_uid}.{name}", wave=number)
        for number, wave in enumerate(waves, 1)
        for name in wave
    ]
    return TaskRun(
        run_uid=request.run_uid,
        lineage=request.lineage,
        deployment=f"{RUN_PREFIX}{request.run_uid[:_SHORT]}",
        schedule=request.schedule,
        created_at=format_time(now),
        deadline=format_time(now + request.deadline),
        max_unavailable=request.max_unavailable,
        canary=request.canary,
        begun=False,
        targets=targets,
    )


def split(
    heard: Sequence[str], silent: Sequence[str], budget: int, canary: int | None
) -> list[list[str]]:
    """Waves of at most `budget` unavailable devices, the canary first, silent ones last: they hold
    nothing up so.

    A device that is silent already counts as unavailable all along. Raises Refused where the budget
    can't be met.
    """
    room = budget - len(silent)
    if budget < 1 or (heard and room < 1) or len(silent) > budget:
        told = f", and {len(silent)} of the selected are silent already" if silent else ""
        raise _never(
            f"--max-unavailable is {budget}{told}",
            f"--max-unavailable {len(silent) + 1}, or select others",
        )
    if canary is not None and not 1 <= canary <= max(room, 1):
        raise _never(
            f"a canary of {canary} is more than may be unavailable at once", "a smaller --canary"
        )
    first = canary or 0
    waves = [list(heard[:first])] + [
        list(heard[at : at + room]) for at in range(first, len(heard), max(room, 1))
    ]
    return [wave for wave in (*waves, list(silent)) if wave]


def _never(why: str, hint: str) -> Refused:
    return Refused(
        "BudgetNeverMet", f"cannot start a run that could never go on: {why}", f"use {hint}"
    )


def _check_capable(devices: Sequence[Device]) -> None:
    wanted = Manifest(deployment="x", scores=[_score("x", "x", "2026-01-01T00:00:00Z")])
    lacking = [
        (device.name, kind_problem(wanted, device) if device.info else "never told of itself")
        for device in devices
    ]
    lacking = [(name, problem) for name, problem in lacking if problem]
    if lacking:
        told = ", ".join(f"{name} ({problem})" for name, problem in lacking[:20])
        raise Refused(
            "MissingCapability",
            f"cannot start a run: {len(lacking)} of the selected can't be upgraded: {told}",
            "install harmony-updater there and allow the kind SystemUpgrade, or select others",
            [FieldError(f"devices.{name}", "MissingCapability") for name, _ in lacking[:20]],
        )


def _check_free(devices: Sequence[Device], active: Sequence[TaskRun]) -> None:
    names = {device.name for device in devices}
    for run in active:
        busy = sorted(names & {target.device for target in run.targets})
        if run.phase == "Running" and busy:
            raise run_active(run, busy[0])


def run_active(run: TaskRun, device: str) -> Refused:
    """The refusal of a run that wants a device of `run`."""
    return Refused(
        "RunActive",
        f"cannot start a run: {device} is in run {run.run_uid[:_SHORT]}, which hasn't ended",
        f"carry it on with: harmony upgrade watch {run.run_uid[:_SHORT]}",
    )


def manifest_of(run: TaskRun, target: TaskTarget) -> Manifest:
    """Return the manifest for a device with an attempt; always the same bytes."""
    score = _score(target.attempt_id, run.run_uid, run.deadline)
    return Manifest(deployment=run.deployment, scores=[score])


def _score(attempt: str, run_uid: str, expires: str) -> SystemUpgrade:
    return SystemUpgrade(name=RESOURCE, attempt_id=attempt, run_uid=run_uid, expires_at=expires)


def due(schedule: Schedule, now: datetime, made: datetime) -> datetime | None:
    """The time that has come, no longer ago than `start_within`, and not before the schedule was
    `made`. Both times are the server's, in UTC.
    """
    if not schedule.enabled:
        return None
    late = timedelta(seconds=seconds(schedule.start_within) or 0)
    last = next(iter(times_before(schedule.cron, now + timedelta(microseconds=1))), None)
    return last if last is not None and last >= max(made, now - late) else None


def request(schedule: Schedule, lineage: str, at: datetime) -> Request:
    """Return the request of a schedule for the time `at`."""
    uid = uuid.uuid5(uuid.UUID(lineage), f"{schedule.name} {format_time(at)}")
    span = timedelta(seconds=seconds(schedule.deadline) or 0)
    return Request(
        str(uid), lineage, span, schedule.max_unavailable, schedule.canary, schedule.name
    )
