"""Advance a rollout: from what is known of its devices to its next state. Pure.

This is the only place that decides. A second call with the same knowledge changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from harmony_fleet.rollout.staged.record import Phase, Rollout, State, Target
from scores.names import format_time, parse_time

ENDED: Final = frozenset({"Succeeded", "RolledBack"})
HAVE: Final = frozenset({"asked", "ready", "succeeded", "failed"})
"""States of devices of which the new content is desired."""
_UNDER_WAY: Final = frozenset({"asked", "ready"})
_OVER: Final = frozenset({"succeeded", "away"})
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Seen:
    """State of a device in the buckets, for what its target wants of it.

    `converged`: what is wanted is desired, and the device says that it is there. `refused` and
    `told` are a code and a sentence: why it never will be, and what it says at the moment.
    `revision` is that of the manifest that stands; 0: none does. `written`: what is wanted is
    desired of it.
    """

    silent: bool = True
    heard: datetime | None = None
    converged: bool = False
    written: bool = False
    revision: int = 0
    content: str | None = None
    """digest of what stands, where that is this home's word"""
    wanted: str = ""
    """digest of what it is to have"""
    refused: tuple[str, str] | None = None
    told: tuple[str, str] = ("Silent", "")


_NOTHING: Final = Seen()


def advance(rollout: Rollout, known: Mapping[str, Seen], now: datetime) -> Rollout:
    """The rollout after what is known `now`. One that ended stays as it is."""
    if rollout.phase in ENDED:
        return rollout
    targets = [
        _follow(rollout, target, known.get(target.device, _NOTHING), now)
        for target in rollout.targets
    ]
    rollout = _set(rollout, targets=targets)
    if rollout.phase == "Running" and rollout.count("failed"):
        rollout = _stopped(rollout, now)
    if rollout.phase == "RollingBack":
        return _end_of_return(rollout, known, now)
    if rollout.phase == "Running":
        return _go_on(rollout, known, now)
    return rollout


def _follow(rollout: Rollout, target: Target, seen: Seen, now: datetime) -> Target:
    """One target by what is known of its device."""
    match target.state:
        case "pending" if seen.silent:
            return moved(target, "away", now)
        case "away" if not seen.silent:
            return moved(target, "pending", now)
        case "asked" | "ready":
            return _asked(rollout, target, seen, now)
        case "returning" if seen.converged:
            return moved(target, "returned", now)
        case "returning" if seen.refused is not None:
            return _because(target, *seen.refused)
        case _:
            return target


def _asked(rollout: Rollout, target: Target, seen: Seen, now: datetime) -> Target:
    if seen.refused is not None:
        return _failed(target, *seen.refused, now)
    if not seen.converged:
        if _late(rollout, target, now):
            code, message = seen.told
            return _failed(target, code or "NotConverged", message, now)
        return moved(target, "asked", now) if target.state == "ready" else target
    if target.state == "asked":
        target = moved(target, "ready", now)
    ready = parse_time(target.since or format_time(now))
    proven = ready + timedelta(seconds=rollout.policy.ready_seconds())
    if now >= proven and seen.heard is not None and seen.heard > proven:
        return moved(target, "succeeded", now)
    patience = proven + timedelta(seconds=rollout.policy.timeout_seconds())
    if seen.silent and now >= patience:
        return _failed(target, "Silent", "no heartbeat came after it converged", now)
    return target


def _late(rollout: Rollout, target: Target, now: datetime) -> bool:
    asked = parse_time(target.asked or format_time(now))
    return now >= asked + timedelta(seconds=rollout.policy.timeout_seconds())


def _stopped(rollout: Rollout, now: datetime) -> Rollout:
    """A target failed: nothing more is asked."""
    first = next(target for target in rollout.targets if target.state == "failed")
    if rollout.policy.on_failure == "rollback":
        return turned_back(rollout, first.reason, now)
    return _set(rollout, phase="Paused", reason=first.reason)


def turned_back(rollout: Rollout, reason: str, now: datetime) -> Rollout:
    """All that have the new content go back to what they had."""
    targets = [
        moved(target, "returning", now, keep=True) if target.state in HAVE else target
        for target in rollout.targets
    ]
    return _set(rollout, phase="RollingBack", reason=reason, targets=targets, ended_at=None)


def _end_of_return(rollout: Rollout, known: Mapping[str, Seen], now: datetime) -> Rollout:
    """Ended once every device has been told, and each that is heard is back or had its time."""
    for target in rollout.targets:
        seen = known.get(target.device, _NOTHING)
        if target.state != "returning" or seen.refused is not None:
            continue
        patience = timedelta(seconds=rollout.policy.timeout_seconds())
        since = parse_time(target.since or format_time(now))
        if not seen.written or not (seen.silent or now >= since + patience):
            return rollout
    return _ended(rollout, "RolledBack", rollout.reason, now)


def _go_on(rollout: Rollout, known: Mapping[str, Seen], now: datetime) -> Rollout:
    targets = list(rollout.targets)
    if _all_over(rollout, now):
        return _ended(rollout, "Succeeded", "", now)
    waiting = [at for at, target in enumerate(targets) if target.state == "pending"]
    if not waiting:
        return _set(rollout, reason="" if rollout.count("asked", "ready") else "NobodyHeard")
    if rollout.promoted:
        return _ask(rollout, waiting, known, now, "")
    wave = min(targets[at].wave for at in waiting)
    if any(target.wave < wave and target.state not in _OVER for target in targets):
        return _set(rollout, reason="")
    if not rollout.policy.opens(now):
        return _set(rollout, reason="OutsideWindow")
    room = rollout.policy.budget(len(targets)) - _unavailable(targets, known)
    chosen = [at for at in waiting if targets[at].wave == wave]
    return _ask(rollout, chosen[: max(0, room)], known, now, _held_by(targets, chosen, room))


def _held_by(targets: Sequence[Target], chosen: Sequence[int], room: int) -> str:
    """The reason why a wave waits: others are under way, or too many devices are away for any to be asked."""
    under_way = any(target.state in _UNDER_WAY for target in targets)
    return "" if under_way or room > 0 or not chosen else "BudgetSpent"


def _all_over(rollout: Rollout, now: datetime) -> bool:
    """Return whether every device that is there has succeeded, and each other was waited for.

    All are silent right after a loss of the server: a device counts as away only after a time.
    """
    if not rollout.count("succeeded") or rollout.count("succeeded", "away") < len(rollout.targets):
        return False
    patience = timedelta(seconds=rollout.policy.timeout_seconds())
    return all(
        now >= parse_time(target.since or format_time(now)) + patience
        for target in rollout.targets
        if target.state == "away"
    )


def _unavailable(targets: Sequence[Target], known: Mapping[str, Seen]) -> int:
    """Count the devices that are on their way, silent, or no longer what they were."""
    count = 0
    for target in targets:
        seen = known.get(target.device, _NOTHING)
        fallen = target.state == "succeeded" and not seen.converged
        count += target.state in _UNDER_WAY or seen.silent or fallen
    return count


def _ask(
    rollout: Rollout, chosen: Sequence[int], known: Mapping[str, Seen], now: datetime, reason: str
) -> Rollout:
    targets = list(rollout.targets)
    for at in chosen:
        target = targets[at]
        before = known.get(target.device, _NOTHING).revision
        targets[at] = asked(target, before, now)
    return _set(rollout, targets=targets, reason=reason)


def asked(target: Target, before: int, now: datetime) -> Target:
    """The target once the new content is to be desired of it. What stood `before` stays noted."""
    kept = before if target.before is None else target.before
    again = {"asked": format_time(now), "before": kept}
    return moved(target, "asked", now).model_copy(update=again)


def moved(target: Target, state: State, now: datetime, *, keep: bool = False) -> Target:
    """The target in another state. With `keep` the reason of the one before stays."""
    told: dict[str, Any] = {} if keep else {"reason": "", "message": ""}
    return target.model_copy(update={"state": state, "since": format_time(now), **told})


def _failed(target: Target, reason: str, message: str, now: datetime) -> Target:
    return _because(moved(target, "failed", now), reason, message)


def _because(target: Target, reason: str, message: str) -> Target:
    """A device's words may not make a record larger than a value may be."""
    told = {"reason": reason[:_LONGEST], "message": message[:_LONGEST]}
    return target.model_copy(update=told)


def _ended(rollout: Rollout, phase: Phase, reason: str, now: datetime) -> Rollout:
    return _set(rollout, phase=phase, reason=reason, ended_at=format_time(now))


def _set(rollout: Rollout, **values: Any) -> Rollout:
    return rollout.model_copy(update=values)


def failed(rollout: Rollout, device: str, told: tuple[str, str], now: datetime) -> Rollout:
    """The rollout where a device's manifest couldn't be written, by a code and a sentence."""
    targets = [
        _failed(target, *told, now)
        if target.device == device and target.state == "asked"
        else target
        for target in rollout.targets
    ]
    return _set(rollout, targets=targets)
