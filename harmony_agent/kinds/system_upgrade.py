"""SystemUpgrade: asks the device's root updater once, and relays its word until the attempt has
ended.

There is nothing to undo: a Score that leaves the manifest lets the attempt end, and is reported
until then. Only the updater says that an upgrade is complete. An attempt that it once knew is never
asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from harmony_agent.core.actions import Act, Action, Converged, Plan, Wait
from harmony_agent.core.errors import Terminal, Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired, Facts
from harmony_agent.topology import Clock
from harmony_agent.topology.updater import Ask, Attempt, Updater, UpdaterRefused
from scores.manifest import FieldError
from scores.status import UpgradeDetail
from scores.system_upgrade import SystemUpgrade

LINGER: Final = 15.0
"""Seconds for which an attempt that ended is still shown after its Score was removed."""
SILENCE: Final = 180.0
"""Seconds for which an updater may say nothing in the middle of an upgrade before that is worth a
word.
"""
POLL: Final = 2.0
_BLOCKED_POLL: Final = 10.0

_MUTATING: Final = frozenset({"applying", "rebooting", "verifying"})
_REASONS: Final[Mapping[str, str]] = {
    "blocked": "UpgradeBlocked",
    "preflight": "UpgradePreflight",
    "applying": "UpgradeApplying",
    "rebooting": "UpgradeRebooting",
    "verifying": "UpgradeVerifying",
    "failed": "UpgradeFailed",
    "repair-required": "RepairRequired",
}
_TERMINAL: Final[Mapping[str, str]] = {
    "expired": "UpgradeExpired",
    "attempt-conflict": "AttemptConflict",
    "wrong-device": "WrongDevice",
    "bad-request": "UpdaterRefused",
    "unsupported": "UpdaterUnsupported",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestUpgrade(Action):
    """Ask the updater for the attempt."""

    ask: Ask
    is_disruptive: bool = False


@dataclass(frozen=True, slots=True)
class Observed:
    """Answer of the updater.

    `known`: it has answered before. `over`: it ended long enough ago to release it.
    """

    attempt: Attempt | None
    known: bool = False
    over: bool = False


class SystemUpgradeReconciler:
    """`core.reconciler.Reconciler` for SystemUpgrade."""

    kind = "SystemUpgrade"
    spec_type = SystemUpgrade

    def __init__(self, updater: Updater, store: KindView, clock: Clock, device: str) -> None:
        self._updater = updater
        self._store = store
        self._clock = clock
        self._device = device
        self._ended: dict[str, Attempt] = {}
        self._ended_at: dict[str, float] = {}
        self._last: dict[str, tuple[Attempt, float]] = {}

    def admit(self, spec: SystemUpgrade) -> Iterable[FieldError]:
        """Nothing of a request can be forbidden by configuration but the kind itself."""
        del spec
        return ()

    def claims(self, spec: SystemUpgrade) -> frozenset[str]:
        """The attempt: two resources can't be the same one."""
        return frozenset({f"attempt:{spec.attempt_id}"})

    async def relist(self) -> Mapping[str, Observed]:
        """Ask for each that hasn't ended."""
        names = self._store.names()
        found = {name: await self.observe(name) for name in names}
        live = {self._attempt_id(name) for name in names}
        for attempt_id in self._ended.keys() - live:
            del self._ended[attempt_id], self._ended_at[attempt_id]
        for attempt_id in self._last.keys() - live:
            del self._last[attempt_id]
        return {name: observed for name, observed in found.items() if observed is not None}

    async def observe(self, name: str) -> Observed | None:
        """The updater's word; None where it knows of no attempt and never did."""
        attempt_id = self._attempt_id(name)
        if not attempt_id:
            return None
        attempt = self._ended.get(attempt_id) or await self._look(attempt_id)
        record = self._store.record(name)
        known = record is not None and record.facts.get("known") == attempt_id
        if attempt is not None and attempt.ended:
            self._ended[attempt_id] = attempt
            self._ended_at.setdefault(attempt_id, self._clock.monotonic())
        over = self._clock.monotonic() - self._ended_at.get(attempt_id, float("inf")) >= LINGER
        return Observed(attempt, known, over) if attempt is not None or known else None

    async def _look(self, attempt_id: str) -> Attempt | None:
        now = self._clock.monotonic()
        try:
            attempt = await self._updater.status(attempt_id)
        except UpdaterRefused as refused:
            raise _refused(refused) from None
        except Transient:
            last, at = self._last.get(attempt_id, (None, now))
            if last is None or now - at > SILENCE:
                raise
            return last  # a postinst restarts it, or the device goes down for the reboot: expected, and no news
        if attempt is not None and attempt.detail.phase in _MUTATING:
            self._last[attempt_id] = (attempt, now)
        else:
            self._last.pop(attempt_id, None)
        return attempt

    def _attempt_id(self, name: str) -> str:
        desired, record = self._store.desired(name), self._store.record(name)
        if desired is not None:
            return str(desired.spec.attempt_id)
        return str(record.facts.get("attempt_id", "")) if record is not None else ""

    def plan(
        self, name: str, desired: Desired[SystemUpgrade] | None, observed: Observed | None
    ) -> Plan[RequestUpgrade]:
        """Ask once, then wait for the end."""
        if desired is None:
            return _let_end(observed)
        if observed is None:
            spec = desired.spec
            ask = Ask(spec.attempt_id, spec.run_uid, self._device, spec.expires_at)
            return Act(
                (RequestUpgrade(name=name, reason="the updater knows of no such attempt", ask=ask),)
            )
        if observed.attempt is None:
            message = "the updater has lost the journal of this attempt: look at the device, then start another attempt"
            return Wait("AttemptLost", message, "Failed", 60.0)
        return _wait_for(observed.attempt.detail)

    async def apply(self, action: RequestUpgrade) -> None:
        """Ask; note that the updater knows, so that it is never asked again should it forget."""
        try:
            attempt = await self._updater.request(action.ask)
        except UpdaterRefused as refused:
            raise _refused(refused) from None
        if not attempt.durable:
            raise Transient(
                "UpgradeBlocked",
                attempt.detail.message or attempt.detail.reason,
                delay=_BLOCKED_POLL,
                phase="Blocked",
            )
        record = self._store.record(action.name)
        facts = dict(record.facts) if record is not None else {}
        await self._store.note(action.name, {**facts, "known": action.ask.attempt_id})

    def facts(self, name: str, desired: Desired[SystemUpgrade], observed: Observed | None) -> Facts:
        """The attempt, so that it is followed to its end without the Score."""
        del observed
        record = self._store.record(name)
        known = record.facts.get("known") if record is not None else None
        facts = {"attempt_id": desired.spec.attempt_id, "run_uid": desired.spec.run_uid}
        return facts | ({"known": known} if known == desired.spec.attempt_id else {})

    def detail(self, name: str, observed: Observed | None) -> UpgradeDetail | None:
        """The updater's own words."""
        del name
        return (
            observed.attempt.detail
            if observed is not None and observed.attempt is not None
            else None
        )


def _let_end(observed: Observed | None) -> Plan[RequestUpgrade]:
    """A removed Score's attempt: gone when it has ended and that was shown."""
    if observed is None or observed.attempt is None or observed.over:
        return Converged()
    if observed.attempt.detail.phase == "complete":
        return Wait("", "", "Completed", LINGER)
    plan = _wait_for(observed.attempt.detail)
    return replace(plan, seconds=min(plan.seconds, LINGER)) if isinstance(plan, Wait) else plan


def _wait_for(detail: UpgradeDetail) -> Converged | Wait:
    """Map the updater's phase to a status."""
    if detail.phase == "complete":
        return Converged("Completed")
    reason = _REASONS[detail.phase]
    message = detail.message or detail.reason
    if detail.phase in ("failed", "repair-required"):
        return Wait(reason, message, "Failed", 3600.0)
    if detail.phase == "blocked":
        return Wait(reason, message, "Blocked", _BLOCKED_POLL)
    return Wait(reason, message, "Progressing", POLL)


def _refused(refused: UpdaterRefused) -> Terminal | Transient:
    """The updater's no, as an outcome."""
    reason = _TERMINAL.get(refused.code)
    if reason is not None:
        return Terminal(reason, f"the updater refuses ({refused.code}): {refused}")
    known = {"repair-required": "RepairRequired", "forbidden": "UpdaterForbidden"}
    reason = known.get(refused.code, "UpdaterRefused")
    return Transient(
        reason, f"the updater refuses ({refused.code}): {refused}", delay=60, phase="Blocked"
    )
