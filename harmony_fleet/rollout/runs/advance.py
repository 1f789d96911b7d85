"""Advance a run: from the known state of its devices to its next state. Pure.

This is the only place that decides. A device succeeds when three things came before the deadline,
by JetStream's time: the updater saw another boot id with healthy packages, the agent relayed
`complete`, and a heartbeat came after that. A second call with the same state changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from harmony_fleet.observe.state import is_silent
from scores.names import format_time, parse_time
from scores.status import DeploymentStatus, ResourceStatus, UpgradeDetail, UpgradeResult
from scores.task_run import RunPhase, TaskRun, TaskTarget

ACTIVE: Final = frozenset({"requested", "upgrading", "complete"})
FAILED: Final = frozenset({"failed", "repair-required"})
ENDED: Final = frozenset({"succeeded", "skipped", *FAILED})
BUDGET_SPENT: Final = "BudgetSpent"
_LONGEST: Final = 80
_NOES: Final = ("Rejected", "Fenced", "Held")


@dataclass(frozen=True, slots=True)
class Evidence:
    """State of a device in the buckets: its status for the run's deployment, and the times of that
    and of a heartbeat.

    `refused` is the reason why its manifest couldn't be written at all. `withdrawn`: no attempt is
    desired of it, and it says that it has none.
    """

    status: DeploymentStatus | None = None
    told_at: datetime | None = None
    heard_at: datetime | None = None
    refused: str = ""
    withdrawn: bool = False

    def silent(self, now: datetime) -> bool:
        """Return whether no heartbeat came lately."""
        return is_silent(self.heard_at, now)


_NOTHING: Final = Evidence()


def advance(run: TaskRun, known: Mapping[str, Evidence], now: datetime) -> TaskRun:
    """The run after what is known `now`. A run that ended, or hasn't begun, stays as it is."""
    if run.phase != "Running" or not run.begun:
        return run
    targets = [
        _follow(run, target, known.get(target.device, _NOTHING), now) for target in run.targets
    ]
    silent = {target.device for target in targets if known.get(target.device, _NOTHING).silent(now)}
    targets = _begin(run, targets, silent, late=now >= parse_time(run.deadline))
    phase, reason = _phase(run, targets)
    return run.model_copy(update={"targets": targets, "phase": phase, "reason": reason})


def cancel(run: TaskRun) -> TaskRun:
    """Begin no further wave, and take back what no device has begun.

    What began goes on to its end: an active apt is never stopped.
    """
    return run if run.phase != "Running" else run.model_copy(update={"cancelled": True})


def give_up(run: TaskRun) -> TaskRun:
    """A run that never begins, because another one has a device of it."""
    targets = [_end(target, "skipped", "RunActive") for target in run.targets]
    return run.model_copy(update={"targets": targets, "phase": "Failed", "reason": "RunActive"})


def _follow(run: TaskRun, target: TaskTarget, seen: Evidence, now: datetime) -> TaskTarget:
    """One target by its evidence."""
    if target.state not in ACTIVE:
        return target
    deadline = parse_time(run.deadline)
    if seen.refused:
        return _end(target, "failed", seen.refused)
    if target.state != "complete":
        target = _relayed(target, seen, deadline)
    if target.state == "complete" and _beat_after(target, seen.heard_at, deadline):
        return _end(target, "succeeded", "")
    late = now >= deadline
    if target.state == "requested" and run.cancelled and (late or _taken_back(seen, now)):
        return _end(target, "skipped", "Withdrawn")
    if target.state in ACTIVE and late:
        return _end(target, "failed", "DeadlineExceeded")
    return target


def _taken_back(seen: Evidence, now: datetime) -> bool:
    """Return whether a request that was taken back is waited for no longer.

    A silent device finds nothing to do when it comes back. Had it begun unheard, it says that in
    its status.
    """
    return seen.withdrawn or seen.silent(now)


def _relayed(target: TaskTarget, seen: Evidence, deadline: datetime) -> TaskTarget:
    """The updater's word, as the agent relays it."""
    if seen.status is None or seen.told_at is None:
        return target
    resource = _resource(seen.status, target.attempt_id)
    if resource is None:
        refused = (
            seen.status.rejected.reason if seen.status.rejected is not None else seen.status.reason
        )
        return (
            _end(target, "failed", refused or "Rejected") if seen.status.phase in _NOES else target
        )
    detail = resource.status
    if not isinstance(detail, UpgradeDetail):
        return (
            _end(target, "failed", resource.reason or "Failed")
            if resource.phase == "Failed"
            else target
        )
    boots = {"boot_id_before": _cut(detail.bootIdBefore), "boot_id_after": _cut(detail.bootIdAfter)}
    target = _set(target, phase=detail.phase, **boots)
    if detail.phase in FAILED:
        return _end(
            target,
            "repair-required" if detail.phase == "repair-required" else "failed",
            detail.reason,
        )
    if detail.phase != "complete":
        return _set(target, state="upgrading", reason=_cut(detail.reason))
    return _completed(target, detail, seen.told_at, deadline)


def _completed(
    target: TaskTarget, detail: UpgradeDetail, told_at: datetime, deadline: datetime
) -> TaskTarget:
    """`complete` counts only with its evidence, and in time: another boot id, or that nothing was
    changed.
    """
    result = detail.result
    unchanged = detail.reason == "NothingToUpgrade" and result is not None and not _changed(result)
    rebooted = (
        detail.bootIdBefore and detail.bootIdAfter and detail.bootIdBefore != detail.bootIdAfter
    )
    if not rebooted and not unchanged:
        return _end(target, "failed", "BootIdUnchanged")
    if result is not None and result.dpkgAudit:
        return _end(target, "repair-required", "PackagesUnhealthy")
    if told_at > deadline:
        return _end(target, "failed", "DeadlineExceeded")
    upgraded = len(result.upgraded) if result is not None else 0
    return _set(
        target, state="complete", reason="", completed_at=format_time(told_at), upgraded=upgraded
    )


def _changed(result: UpgradeResult) -> bool:
    return bool(result.upgraded or result.installed or result.removed)


def _resource(status: DeploymentStatus, attempt: str) -> ResourceStatus | None:
    """The resource of this attempt; one that says nothing of an attempt yet is taken for it."""
    for resource in status.resources.values():
        if not isinstance(resource.status, UpgradeDetail) or resource.status.attemptId == attempt:
            return resource
    return None


def _beat_after(target: TaskTarget, heard: datetime | None, deadline: datetime) -> bool:
    """Return whether a heartbeat is known to have come after `complete` and before the deadline.

    Times on the wire are cut to milliseconds, so it has to be later by one: the same one is not
    after itself.
    """
    if heard is None or target.completed_at is None:
        return False
    return heard <= deadline and (heard - parse_time(target.completed_at)).total_seconds() > 0.001


def _begin(
    run: TaskRun, targets: Sequence[TaskTarget], silent: Collection[str], *, late: bool
) -> list[TaskTarget]:
    """Begin the next wave where all before it succeeded; skip what never will begin."""
    stop = ""
    if any(target.state in FAILED for target in targets):
        stop = "EarlierWaveFailed"
    elif run.cancelled:
        stop = "Cancelled"
    elif late:
        stop = "DeadlineExceeded"
    if stop:
        return [
            _end(target, "skipped", stop) if target.state == "pending" else target
            for target in targets
        ]
    behind = min((target.wave for target in targets if target.state != "succeeded"), default=0)
    return _within_budget(run, targets, silent, behind)


def _within_budget(
    run: TaskRun, targets: Sequence[TaskTarget], silent: Collection[str], wave: int
) -> list[TaskTarget]:
    """Ask as many of the wave as may be unavailable; the rest waits.

    Whoever is silent is unavailable already, whether it was asked or not.
    """
    unavailable = sum(target.state in ACTIVE or target.device in silent for target in targets)
    after = []
    for target in targets:
        if target.state != "pending" or target.wave != wave:
            after.append(target)
        elif target.device in silent:
            after.append(_set(target, state="requested", reason=""))
        elif unavailable < run.max_unavailable:
            unavailable += 1
            after.append(_set(target, state="requested", reason=""))
        else:
            after.append(_set(target, reason=BUDGET_SPENT))
    return after


def _phase(run: TaskRun, targets: Sequence[TaskTarget]) -> tuple[RunPhase, str]:
    if not all(target.state in ENDED for target in targets):
        return "Running", ""
    bad = next((target for target in targets if target.state in FAILED), None)
    if bad is not None:
        return "Failed", bad.reason or bad.state
    if any(target.state == "skipped" for target in targets):
        return ("Cancelled", "Cancelled") if run.cancelled else ("Failed", "DeadlineExceeded")
    return "Succeeded", ""


def _end(target: TaskTarget, state: str, reason: str) -> TaskTarget:
    return _set(target, state=state, reason=_cut(reason))


def _set(target: TaskTarget, **values: Any) -> TaskTarget:
    return target.model_copy(update=values)


def _cut(text: str | None) -> str | None:
    """A device's words may not make a run larger than a value may be."""
    return None if text is None else text[:_LONGEST]
