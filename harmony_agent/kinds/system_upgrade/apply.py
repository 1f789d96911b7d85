"""SystemUpgrade: asks the updater, and records that it has answered."""

from __future__ import annotations

from dataclasses import replace

from harmony_agent.core.errors import Transient
from harmony_agent.core.reconciler import KindView
from harmony_agent.kinds.system_upgrade.actions import RequestUpgrade
from harmony_agent.kinds.system_upgrade.facts import read, write
from harmony_agent.kinds.system_upgrade.plan import BLOCKED_POLL
from harmony_agent.kinds.system_upgrade.refusals import outcome
from harmony_agent.topology.updater import Updater, UpdaterRefused
from scores.system_upgrade import SystemUpgrade


class Applier:
    """Asks one device's updater."""

    def __init__(self, updater: Updater, view: KindView[SystemUpgrade]) -> None:
        self._updater, self._view = updater, view

    async def apply(self, action: RequestUpgrade) -> None:
        """Ask; note that the updater knows, so that it is never asked again should it forget."""
        try:
            attempt = await self._updater.request(action.ask)
        except UpdaterRefused as refused:
            raise outcome(refused) from None
        if not attempt.durable:
            raise Transient(
                "UpgradeBlocked",
                attempt.detail.message or attempt.detail.reason,
                delay=BLOCKED_POLL,
                phase="Blocked",
            )
        facts = read(self._view.record(action.name))
        await self._view.note(action.name, write(replace(facts, known=action.ask.attempt_id)))
