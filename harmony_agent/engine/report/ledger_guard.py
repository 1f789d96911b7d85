"""Notices that the ledger's files were taken away under a running agent, and writes them anew."""

from __future__ import annotations

import logging
from collections.abc import Callable

from harmony_agent.core.errors import ResourceError
from harmony_agent.engine.report.status import Publisher
from harmony_agent.engine.report.status_line import StatusLine
from harmony_agent.engine.state.device_state import DeviceState

log = logging.getLogger(__name__)


class LedgerGuard:
    """Looks after the ledger's files each period.

    Until they can be written anew, the device is kept up from memory, and every status says that.
    """

    def __init__(
        self,
        state: DeviceState,
        publisher: Publisher,
        status_line: StatusLine,
        rebuilt: Callable[[], None],
    ) -> None:
        """`rebuilt` is called when the state directory had to be made anew."""
        self._state = state
        self._publisher = publisher
        self._status_line = status_line
        self._rebuilt = rebuilt
        self._lost = False

    async def look(self) -> bool:
        """Look once; False where the ledger is lost and can't be written."""
        if self._state.ledger.intact():
            return True
        if not self._lost:
            log.error(
                "the ledger's files were taken away: writing them anew from memory",
                extra={"reason": "LedgerLost"},
            )
        try:
            await self._state.rebuild()
        except ResourceError as error:
            if not self._lost:
                log.error("%s", error, extra={"reason": "LedgerLost"})  # noqa: TRY400  # no defect: the words say all
            self._say(True)
            return False
        log.warning("the ledger is written anew", extra={"reason": "LedgerLost"})
        self._say(False)
        self._rebuilt()
        return True

    def _say(self, lost: bool) -> None:
        if lost != self._lost:
            self._lost = lost
            self._publisher.say_ledger_lost(lost)
            self._status_line.say_ledger_lost(lost)
