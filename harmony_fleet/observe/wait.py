"""Wait until devices answered: judge each status (pure), and watch until all are settled or time is
up.

Judged is only what a status says of the generation that is waited for; an older verdict is not
taken for this one's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from harmony_fleet.errors import ExitCode
from harmony_fleet.manifests.shared import specs_shared
from harmony_fleet.nats.consumer import Entry
from harmony_fleet.nats.kv import Store
from harmony_fleet.observe.state import read_device, to_actual
from scores.keys import ACTUAL, DeploymentKey
from scores.manifest import WireManifest
from scores.status import SETTLED, DeploymentStatus, ResourceStatus

_STALE: Final = frozenset({"LineageChanged", "StaleGeneration", "GenerationReused"})
_GUARDS: Final = frozenset(
    {
        "PruneGuard",
        "OwnershipConflict",
        "LedgerLost",
        "OwnedByAnotherDeployment",
        "KindNotAllowed",
        "MissingCapability",
    }
)


@dataclass(frozen=True, slots=True)
class Target:
    """Goal of a wait.

    `answered` is the revision of ``actual-state`` before: statuses up to it are old. `specs` are
    the desired spec digests by resource; the status of an older spec doesn't count. `generation` 0,
    with `removed`, waits for anybody's removal.
    """

    key: DeploymentKey
    lineage: str
    generation: int
    removed: bool = False
    answered: int = 0
    specs: Mapping[str, str] = field(default_factory=dict)


def target_of(wire: WireManifest, answered: int = 0) -> Target:
    """Return the target of a wait for `wire`."""
    key = DeploymentKey(wire.device, wire.deployment)
    return Target(key, wire.lineage, wire.generation, wire.removed, answered, specs_shared(wire))


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of a status. `exit_code` None: not settled yet."""

    exit_code: ExitCode | None
    phase: str
    reason: str = ""
    message: str = ""
    hint: str = ""


Observer = Callable[[Target, DeploymentStatus | None, Verdict], None]


def judge(target: Target, status: DeploymentStatus | None, revision: int) -> Verdict:
    """Judge `status`, at `revision` of ``actual-state``, for a target."""
    if status is None:
        return Verdict(None, "Waiting", message="the device hasn't answered yet")
    if target.generation == 0:
        return _removal(status)
    refusal = _refusal(target, status, revision)
    if refusal is not None:
        return refusal
    if status.lineage != target.lineage or status.generation != target.generation:
        return _elsewhere(target, status)
    return _removal(status) if target.removed else _enforced(target, status)


def _removal(status: DeploymentStatus) -> Verdict:
    if status.reason == "LedgerLost":
        return _undecided(status)
    done = status.phase == "Removed"
    return Verdict(ExitCode.DONE if done else None, status.phase, status.reason, status.message)


def _undecided(status: DeploymentStatus) -> Verdict:
    """The device waits for somebody to say what becomes of what it had."""
    return Verdict(
        ExitCode.REFUSED, status.phase, status.reason, status.message, _HINTS["LedgerLost"]
    )


def _refusal(target: Target, status: DeploymentStatus, revision: int) -> Verdict | None:
    """The device's no to this very generation."""
    rejected = status.rejected
    if rejected is not None and rejected.generation is not None:
        ours = rejected.generation == target.generation
    else:
        ours = (
            status.phase in _NOES
            and revision > target.answered
            and status.reason != "DesiredStateMissing"
        )
    if not ours:
        return None
    reason = rejected.reason if rejected is not None else status.reason
    phase = status.phase if status.phase in _NOES else "Rejected"
    return Verdict(_code(reason), phase, reason, status.message, _HINTS.get(reason, ""))


_NOES: Final = ("Rejected", "Fenced", "Held")
_HINTS: Final[Mapping[str, str]] = {
    "Reverted": "see what failed, mend it, and apply again: that makes the next generation",
    "LineageChanged": "to own it from now on: --take-over",
    "StaleGeneration": "somebody else wrote a newer one: look with harmony status, then apply again",
    "GenerationReused": "somebody else wrote that generation: look with harmony status, then apply again",
    "Paused": "it is taken when the pause ends; to end it now: harmony resume DEVICE/DEPLOYMENT",
    "PruneGuard": "if that is meant: --allow-prune with the count",
    "KindNotAllowed": "allow the kind in the agent's configuration there",
    "OwnedByAnotherDeployment": "take it out of the other deployment first",
    "SignatureMissing": "write it where the signing keys are, or make one: harmony fleet key new",
    "SignatureUnknownKey": "put the key of harmony fleet key list into [trust] keys of the device's configuration",
    "SignatureInvalid": "somebody else writes there, or wrote: apply again, and see who has NATS' credentials",
    "LedgerLost": "take it back: harmony adopt DEVICE/DEPLOYMENT; take it off: harmony delete DEPLOYMENT --remains",
    "OwnershipConflict": "something that isn't ours is there: set adopt: true, and it is put back at removal; or move it",
}


def _code(reason: str) -> ExitCode:
    if reason in _STALE:
        return ExitCode.STALE
    return ExitCode.REFUSED if reason in _GUARDS else ExitCode.NOT_CONVERGED


def _elsewhere(target: Target, status: DeploymentStatus) -> Verdict:
    """The device enforces another generation: an older one is still to be replaced, a newer one has
    overtaken ours.
    """
    if status.lineage == target.lineage and (status.generation or 0) > target.generation:
        return Verdict(
            ExitCode.STALE,
            "Superseded",
            "StaleGeneration",
            f"generation {status.generation} was written meanwhile",
            "look with harmony status",
        )
    return Verdict(
        None, "Waiting", message=f"the device still has generation {status.generation or 'none'}"
    )


def _enforced(target: Target, status: DeploymentStatus) -> Verdict:
    if status.phase == "Converged":
        return Verdict(ExitCode.DONE, status.phase)
    current = [
        item
        for item in unsettled(status)
        if target.specs.get(item[0], item[1].spec_digest) == item[1].spec_digest
    ]
    for name, resource in current:
        if resource.phase == "Blocked" and resource.reason in _GUARDS:
            message = f"{name}: {resource.message or resource.phase}"
            return Verdict(
                ExitCode.REFUSED,
                status.phase,
                resource.reason,
                message,
                _HINTS.get(resource.reason, ""),
            )
    if (
        status.phase == "Degraded"
        and status.reason == "LedgerLost"
        and any(resource.reason == "LedgerLost" for _, resource in unsettled(status))
    ):
        return _undecided(status)
    if status.phase == "Failed" and any(resource.phase == "Failed" for _, resource in current):
        return Verdict(
            ExitCode.NOT_CONVERGED,
            status.phase,
            status.reason,
            status.message,
            "harmony status --resources",
        )
    if status.phase in ("Removing", "Removed"):
        return Verdict(
            ExitCode.NOT_CONVERGED, status.phase, status.reason, status.message, "harmony status"
        )
    return Verdict(None, status.phase, status.reason, status.message)


def unsettled(status: DeploymentStatus | None) -> list[tuple[str, ResourceStatus]]:
    """The resources that aren't Ready or Completed."""
    return [
        item
        for item in sorted((status.resources if status else {}).items())
        if item[1].phase not in SETTLED
    ]


async def wait_for(
    store: Store, targets: Sequence[Target], seconds: float, observe: Observer
) -> dict[DeploymentKey, Verdict]:
    """Watch until all are settled or `seconds` are over; `observe` hears of every change."""
    by_key = {str(target.key): target for target in targets}
    verdicts = {target.key: Verdict(None, "Waiting") for target in targets}
    heard: set[DeploymentKey] = set()
    open_keys = set(verdicts)
    if targets:
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(seconds),
                contextlib.aclosing(store.watch(ACTUAL, list(by_key))) as updates,
            ):
                async for entry in updates:
                    target = by_key[entry.key]
                    verdicts[target.key] = verdict = _take(target, entry, heard, observe)
                    (open_keys.add if verdict.exit_code is None else open_keys.discard)(target.key)
                    if not open_keys:
                        break
    for target in targets:
        if verdicts[target.key].exit_code is None:
            verdicts[target.key] = await _late(
                store, target, verdicts[target.key], target.key in heard, seconds
            )
    return verdicts


def _take(target: Target, entry: Entry, heard: set[DeploymentKey], observe: Observer) -> Verdict:
    actual = to_actual(entry)
    if entry.value is not None and entry.revision > target.answered:
        heard.add(target.key)
    verdict = judge(target, actual.status, entry.revision)
    if actual.problem:
        verdict = Verdict(None, "Unreadable", actual.problem, "the device's status can't be read")
    observe(target, actual.status, verdict)
    return verdict


async def _late(
    store: Store, target: Target, last: Verdict, heard: bool, seconds: float
) -> Verdict:
    """Time is up: was it the device that said nothing, NATS that is gone, or only the work that
    isn't done?
    """
    waited = f"not settled after {seconds:g} s"
    if not store.connected:
        return Verdict(
            ExitCode.UNREACHABLE,
            last.phase,
            "NatsUnreachable",
            "the connection to NATS was lost",
            "harmony status, later",
        )
    device = await read_device(store, target.key.device)
    if heard or not device.silent(await store.now()):
        why = f"{waited}: {last.message}" if last.message else waited
        hint = "harmony status --resources says what is behind; harmony wait goes on waiting"
        return replace(
            last,
            exit_code=ExitCode.NOT_CONVERGED,
            reason=last.reason or "Timeout",
            message=why,
            hint=hint,
        )
    silence = "it never sent a heartbeat" if device.heard is None else "its heartbeat is stale"
    return Verdict(
        ExitCode.UNREACHABLE,
        last.phase,
        "DeviceSilent",
        f"{target.key.device} didn't answer within {seconds:g} s: {silence}",
        "see harmony devices; the manifest stays and is taken when the device is back",
    )
