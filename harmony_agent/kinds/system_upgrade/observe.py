"""SystemUpgrade: asks the updater how the attempts are. An attempt that ended is asked for no more."""

from __future__ import annotations

from typing import Final

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.core.resources import Desired
from harmony_agent.kinds.system_upgrade.facts import read
from harmony_agent.kinds.system_upgrade.observed import Observed
from harmony_agent.kinds.system_upgrade.plan import LINGER
from harmony_agent.kinds.system_upgrade.refusals import outcome
from harmony_agent.topology import Clock
from harmony_agent.topology.updater import Attempt, Updater, UpdaterRefused
from scores.system_upgrade import SystemUpgrade

SILENCE: Final = 180.0
"""Seconds for which an updater may say nothing in the middle of an upgrade before that is worth a
word.
"""
_MUTATING: Final = frozenset({"applying", "rebooting", "verifying"})


class Observer:
    """Asks one device's updater."""

    def __init__(self, updater: Updater, view: KindView[SystemUpgrade], clock: Clock) -> None:
        self._updater, self._view, self._clock = updater, view, clock
        self._ended: dict[str, tuple[Attempt, float]] = {}
        """by attempt: its end, and since when that is known"""
        self._last: dict[str, tuple[Attempt, float]] = {}
        """by attempt: what was told last in the middle of an upgrade, and when"""

    async def relist(self) -> dict[str, Observed]:
        """Ask for each that hasn't ended."""
        names = self._view.names()
        found = {name: await self.one(name) for name in names}
        live = {self._attempt_id(name) for name in names}
        for known in (self._ended, self._last):
            for attempt_id in known.keys() - live:
                del known[attempt_id]
        return {name: observed for name, observed in found.items() if observed is not None}

    async def one(self, name: str) -> Observed | None:
        """The updater's answer; None if it has never known the attempt."""
        attempt_id = self._attempt_id(name)
        if not attempt_id:
            return None
        ended = self._ended.get(attempt_id)
        attempt = ended[0] if ended is not None else await self._ask(attempt_id)
        if ended is None and attempt is not None and attempt.ended:
            ended = self._ended[attempt_id] = (attempt, self._clock.monotonic())
        known = read(self._view.record(name)).known == attempt_id
        over = ended is not None and self._clock.monotonic() - ended[1] >= LINGER
        return Observed(attempt, known, over) if attempt is not None or known else None

    async def _ask(self, attempt_id: str) -> Attempt | None:
        now = self._clock.monotonic()
        try:
            attempt = await self._updater.status(attempt_id)
        except UpdaterRefused as refused:
            raise outcome(refused) from None
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
        desired: Desired[SystemUpgrade] | None = self._view.desired(name)
        if desired is not None:
            return desired.spec.attempt_id
        return read(self._view.record(name)).attempt_id
