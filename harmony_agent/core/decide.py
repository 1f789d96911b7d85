"""The next step for one resource, decided once: the engine carries it out, ``harmony-agent plan``
prints it.

Pure: every fact that a decision rests on is a field of `DecisionInput`. Nothing here observes,
writes, waits or logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from harmony_agent.core import drift
from harmony_agent.core.actions import Act, Action, Converged, Plan, Wait
from harmony_agent.core.backoff import CrashLoop
from harmony_agent.core.dependencies import Leaving, in_the_way, outlives, unmet
from harmony_agent.core.frozen import frozen
from harmony_agent.core.refusal import advice_of
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome
from harmony_agent.core.steps import (
    Claim,
    Execute,
    Gone,
    Hold,
    Release,
    Report,
    Settled,
    Step,
)
from scores.base import Score
from scores.manifest import FieldError
from scores.status import ResourcePhase, ResourceStatus

NAMED: Final = 3
"""Number of resources that a message names before it counts the rest."""


@dataclass(slots=True)
class RetryState:
    """Memory of one resource between passes. A restart of the agent loses it without harm.

    `version` is the `Desired.version` that it belongs to ("" while the resource is removed). `changed`:
    it was changed, and hasn't converged since.
    """

    version: str = ""
    tries: int = 0
    failed: Outcome | None = None
    episode: drift.DriftEpisode | None = None
    crash: CrashLoop | None = None
    changed: bool = False


@frozen()
class Others:
    """State of the other resources: the digests that are wanted, their statuses, and the records
    being removed.
    """

    digests: Mapping[Key, str]
    statuses: Mapping[Key, ResourceStatus]
    leaving: Leaving = field(default_factory=Leaving)


@frozen()
class Now:
    """The moment of a decision: monotonic seconds, and the same as the wire's time."""

    monotonic: float
    wire: str


@frozen()
class DecisionInput:
    """One resource as it stands.

    `claims` are those of the spec. `idle` says that a kind which runs processes has none of this
    resource now. `acted` and `restarted` tell what the same pass already did: repaired something,
    and by which steps it started anew. `taken` are the records of resources that hold some of
    `claims` and don't want it any more: it passes on as it is. `paused` is the end of the pause
    that holds it; "" if there is none.
    """

    key: Key
    desired: Desired[Score] | None
    record: OwnershipRecord | None
    plan: Plan[Action]
    others: Others
    now: Now
    claims: frozenset[str] = frozenset()
    idle: bool = False
    memory: RetryState = field(default_factory=RetryState)
    acted: bool = False
    restarted: tuple[type[Action], ...] = ()
    taken: Sequence[OwnershipRecord] = ()
    paused: str = ""

    @property
    def owned(self) -> bool:
        """The ledger says that all that the spec occupies is ours, under this name or one that
        gives it up.
        """
        records = (*([self.record] if self.record is not None else []), *self.taken)
        return bool(records) and self.claims <= frozenset().union(
            *(record.claims for record in records)
        )


# -- before the resource is observed


def not_allowed(kind: str) -> Hold:
    """Hold a resource whose kind the configuration no longer allows. It isn't removed either."""
    message = (
        f"the configuration doesn't allow the kind {kind} any more: allow it, or take this out"
    )
    return Hold("Blocked", "KindNotAllowed", message)


def refused(errors: Iterable[FieldError]) -> Hold | None:
    """Hold a Score that was accepted, and that the configuration no longer allows."""
    error = next(iter(errors), None)
    if error is None:
        return None
    message = (
        f"the configuration doesn't allow its {error.field} any more: "
        f"{advice_of(error) or 'allow it, or take this out'}"
    )
    return Hold("Blocked", error.code, message)


def without_a_look(
    record: OwnershipRecord | None, paused: str = ""
) -> Release | Gone | Hold | None:
    """The step for a resource that is not wanted, where observing it would change nothing."""
    if record is None:
        return Gone()
    if record.on_remove != "orphan":
        return None
    return kept("Removing", "release it", paused) if paused else Release()


# -- after it was observed and planned


def next_step(case: DecisionInput) -> Step:
    """Decide what one look and its plan lead to."""
    step = _step(case)
    if not case.paused or not isinstance(case.plan, Act):
        return step
    acts = isinstance(step, Claim | Execute) or (isinstance(step, Hold) and step.backoff)
    return _paused(case, case.plan) if acts else step


def kept(phase: ResourcePhase, what: str, until: str) -> Hold:
    """Hold while it is paused. Whoever ends the pause has it looked at again."""
    return Hold(phase, "Paused", f"paused until {until}; then: {what}")


def _paused(case: DecisionInput, plan: Act[Action]) -> Step:
    """Tell drift as with `drift: report`, and leave all else as it is."""
    reasons = "; ".join(action.reason for action in plan.actions)
    if case.desired is None:
        return kept("Removing", reasons, case.paused)
    if _drifted(case, case.desired, plan):
        return Report(reasons, _episode(case, plan, report=True))
    was = case.record is not None and case.record.applied == case.desired.version
    return kept("Degraded" if was else "Blocked", reasons, case.paused)


def _step(case: DecisionInput) -> Step:
    if case.desired is None:
        return _remove(case)
    if isinstance(case.plan, Act) and case.plan.ahead and case.record is not None:
        return Execute(case.plan)
    return (
        _wait_for_others(case, case.desired)
        or _conflict(case, case.desired)
        or _own(case, case.desired)
    )


def next_start(memory: RetryState, now: float) -> float:
    """Seconds until what ended by itself may be started anew."""
    return replace(memory.crash).wait(now) if memory.crash is not None else 0.0


def crash_loop(reasons: str, wait: float) -> Hold:
    """Keep a growing distance between starts of what ends by itself."""
    return Hold(
        "Degraded", "CrashLoop", f"{reasons}; next start in {wait:.0f} s", wait, backoff=True
    )


def _remove(case: DecisionInput) -> Step:
    """Ask as for a wanted one, in the same order; the ledger's record stands for the spec."""
    plan, record = case.plan, case.record
    if record is None or isinstance(plan, Converged):
        return Gone()
    waits = outlives(record, case.others.leaving)
    if waits:
        return _waits_for(waits, "Removing")
    if isinstance(plan, Wait):
        phase: ResourcePhase = "Removing" if plan.phase == "Progressing" else plan.phase
        return Hold(phase, plan.reason, plan.message, plan.seconds)
    return Execute(plan)


def _wait_for_others(case: DecisionInput, desired: Desired[Score]) -> Hold | None:
    """Wait for needs, and for what leaves and is in the way.

    A resource that reached this spec before and runs waits for nothing.
    """
    if case.record is not None and case.record.applied == desired.version and not case.idle:
        return None
    waits = unmet(desired.needs, case.others.digests, case.others.statuses)
    if case.others.leaving:
        taken = [record.key for record in case.taken]
        waits += in_the_way(case.claims, case.key, case.others.leaving, taken)
    return _waits_for(waits, "Pending") if waits else None


def _waits_for(others: Sequence[str], phase: ResourcePhase) -> Hold:
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    message = f"waits for {', '.join(others[:NAMED])}{more}"
    return Hold(phase, "WaitsFor", message, waits_for=tuple(others))


def _conflict(case: DecisionInput, desired: Desired[Score]) -> Hold | None:
    """Hold instead of changing or stopping what isn't ours, unless the Score says `adopt`."""
    if not isinstance(case.plan, Act) or desired.spec.adopt or case.owned:
        return None
    disturbing = next((action.reason for action in case.plan.actions if action.is_disruptive), None)
    if disturbing is None:
        return None
    what = ", ".join(sorted(case.claims - (case.record.claims if case.record else frozenset())))
    message = (
        f"{what} exists, isn't ours and differs ({disturbing}): set adopt: true, and it is kept and "
        "put back at removal; or move it elsewhere"
    )
    return Hold("Blocked", "OwnershipConflict", message)


def _own(case: DecisionInput, desired: Desired[Score]) -> Step:
    """Claim first. A plan that only waits for what isn't ours needs no claim."""
    current = case.record is not None and case.owned and case.record.spec_digest == desired.digest
    current = current and not case.taken
    if not current and (case.owned or not isinstance(case.plan, Wait)):
        return Claim()
    return _carry_out(case, desired)


def _carry_out(case: DecisionInput, desired: Desired[Score]) -> Step:
    plan = case.plan
    if isinstance(plan, Wait):
        return Hold(plan.phase, plan.reason, plan.message, plan.seconds)
    if isinstance(plan, Converged):
        return Settled(plan.phase, plan.holds, plan.reason, plan.message, plan.again)
    if not plan.drift:
        return Execute(plan)
    drifted = _drifted(case, desired, plan)
    reasons = "; ".join(action.reason for action in plan.actions)
    if drifted and desired.spec.drift == "report":
        return Report(reasons, _episode(case, plan, report=True))
    if plan.is_restart:
        return _start_anew(case, plan, reasons)
    return _repair(case, plan, reasons) if drifted and not case.acted else Execute(plan)


def _drifted(case: DecisionInput, desired: Desired[Score], plan: Act[Action]) -> bool:
    """Otherwise it ended by itself, or a new spec is on its way."""
    if not plan.drift or plan.is_restart or case.record is None:
        return False
    return case.record.applied == desired.version


def _start_anew(case: DecisionInput, plan: Act[Action], reasons: str) -> Step:
    # By the same steps: it was started in this very pass and ended again. By others: it isn't
    # started yet.
    if case.restarted not in ((), tuple(type(action) for action in plan.actions)):
        return Execute(plan)
    wait = next_start(case.memory, case.now.monotonic)
    return Execute(plan, "crash") if wait <= 0 else crash_loop(reasons, wait)


def _repair(case: DecisionInput, plan: Act[Action], reasons: str) -> Step:
    episode = _episode(case, plan, report=False)
    wait = episode.wait(case.now.monotonic)
    if wait <= 0:
        return Execute(plan, "drift", episode)
    message = f"something keeps undoing this ({reasons}); next repair in {wait:.0f} s"
    return Hold("Degraded", "Contended", message, wait, backoff=True, episode=episode)


def _episode(case: DecisionInput, plan: Act[Action], *, report: bool) -> drift.DriftEpisode:
    """A copy of the remembered episode with what differs now."""
    old = case.memory.episode
    old = replace(old, repairs=list(old.repairs)) if old is not None else None
    return drift.seen(old, plan.fields, case.now.monotonic, case.now.wire, report=report)
