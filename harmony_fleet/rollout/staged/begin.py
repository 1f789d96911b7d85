"""Begin a rollout, and what an operator changes in one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from harmony_fleet.errors import InvalidInput
from harmony_fleet.rollout.staged.advance import Seen, asked, moved, turned_back
from harmony_fleet.rollout.staged.record import MAX_PAST, MAX_TARGETS, Past, Rollout, Target
from harmony_fleet.roster.policy import RolloutPolicy
from scores.names import format_time

Changed = Callable[[Rollout, datetime], Rollout]
"""An operator's change, at the server's time."""
_ENDS: Final[Mapping[str, Literal["Succeeded", "RolledBack"]]] = {
    "Succeeded": "Succeeded",
    "RolledBack": "RolledBack",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Content to roll out: of which deployment, written by whom, by which generation of the roster.

    `content` is the digest of what is wanted of all devices.
    """

    deployment: str
    lineage: str
    roster_generation: int
    content: str
    policy: RolloutPolicy


def begin(
    wanted: Wanted, known: Mapping[str, Seen], now: datetime, former: Rollout | None
) -> Rollout:
    """A rollout to the devices of `known`, in that order. Those that are silent come last. Raises
    InvalidInput where there are too many.
    """
    if len(known) > MAX_TARGETS:
        raise InvalidInput(
            "TooManyTargets",
            f"cannot roll {wanted.deployment} out to {len(known)} devices: the most is {MAX_TARGETS}",
            "split it into deployments that select fewer",
        )
    contents: list[str] = []
    targets = _targets(contents, waves(_in_order(known), wanted.policy), known, 0)
    return Rollout(
        deployment=wanted.deployment,
        lineage=wanted.lineage,
        content=wanted.content,
        roster_generation=wanted.roster_generation,
        policy=wanted.policy,
        created_at=format_time(now),
        contents=contents,
        targets=targets,
        past=remembered(former, now),
    )


def joined(rollout: Rollout, meant: Collection[str], more: Mapping[str, Seen]) -> Rollout:
    """The rollout without devices that are meant no more, and with `more`, which come last."""
    kept = [target for target in rollout.targets if target.device in meant]
    if not more and len(kept) == len(rollout.targets):
        return rollout
    contents = list(rollout.contents)
    size = rollout.policy.budget(len(kept) + len(more))
    names = _in_order(more)
    groups = [names[at : at + size] for at in range(0, len(names), size)]
    last = max(target.wave for target in kept)
    added = _targets(contents, groups, more, last)
    return rollout.model_copy(update={"targets": [*kept, *added], "contents": contents})


def _in_order(known: Mapping[str, Seen]) -> list[str]:
    """Those that are silent come last."""
    return sorted(known, key=lambda name: known[name].silent)


def _targets(
    contents: list[str],
    groups: Sequence[Sequence[str]],
    known: Mapping[str, Seen],
    last: int,
) -> list[Target]:
    """Targets in waves after the `last`; digests that aren't among `contents` are added there."""
    places = {digest: at for at, digest in enumerate(contents)}

    def place(digest: str) -> int:
        if digest not in places:
            places[digest] = len(contents)
            contents.append(digest)
        return places[digest]

    return [
        Target(
            device=name,
            wave=number,
            wants=place(known[name].wanted),
            stood=None if (stood := known[name].content) is None else place(stood),
        )
        for number, group in enumerate(groups, last + 1)
        for name in group
    ]


def waves(names: Sequence[str], policy: RolloutPolicy) -> list[Sequence[str]]:
    """The canary alone, then as many at once as may be unavailable."""
    size = policy.budget(len(names))
    first = min(policy.canary or 0, size)
    rest = [names[at : at + size] for at in range(first, len(names), size)]
    return [wave for wave in (names[:first], *rest) if wave]


def remembered(former: Rollout | None, now: datetime) -> Sequence[Past]:
    """The rollouts of before with `former`, the newest first."""
    if former is None:
        return ()
    last = Past(
        content=former.content,
        roster_generation=former.roster_generation,
        created_at=former.created_at,
        ended_at=former.ended_at or format_time(now),
        phase=_ENDS.get(former.phase, "Replaced"),
        reason=former.reason,
        devices=len(former.targets),
        succeeded=former.count("succeeded"),
        failed=former.count("failed"),
    )
    return (last, *former.past)[:MAX_PAST]


def pause(rollout: Rollout, _now: datetime) -> Rollout:
    """Ask no further device; those that were asked go on."""
    if rollout.phase != "Running":
        raise _not_now("pause", rollout)
    return rollout.model_copy(update={"phase": "Paused", "reason": "Asked"})


def resume(rollout: Rollout, now: datetime) -> Rollout:
    """Go on: what failed has its time once more, what went back is asked anew."""
    if rollout.phase not in ("Paused", "RolledBack"):
        raise _not_now("resume", rollout)
    targets = [_again(target, now) for target in rollout.targets]
    return rollout.model_copy(
        update={"phase": "Running", "reason": "", "ended_at": None, "targets": targets}
    )


def _again(target: Target, now: datetime) -> Target:
    if target.state == "failed":
        return asked(target, target.before or 0, now)
    if target.state in ("returning", "returned"):
        return moved(target, "pending", now).model_copy(update={"before": None, "asked": None})
    return target


def promote(rollout: Rollout, now: datetime) -> Rollout:
    """Ask all that wait, at once: no wave, no window, no budget any more."""
    if rollout.phase not in ("Running", "Paused"):
        raise _not_now("promote", rollout)
    going = resume(rollout, now) if rollout.phase == "Paused" else rollout
    return going.model_copy(update={"promoted": True})


def undo(rollout: Rollout, now: datetime) -> Rollout:
    """Have every device that got the new content go back to what it had."""
    if rollout.phase in ("RollingBack", "RolledBack"):
        raise _not_now("undo", rollout)
    return turned_back(rollout, "Asked", now)


def _not_now(verb: str, rollout: Rollout) -> InvalidInput:
    return InvalidInput(
        "RolloutPhase",
        f"cannot {verb} the rollout of {rollout.deployment}: it is {rollout.phase}",
        f"see it with: harmony rollout status {rollout.deployment}",
    )
