"""A root updater in memory: attempts by id, in whatever phase a test puts them; and one that isn't
there.

Follows contract section 8: the same request again gets the same attempt, another content is a
conflict.
"""

from __future__ import annotations

from harmony_agent.core.errors import Transient
from harmony_agent.topology.updater import Ask, Attempt, Offer, UpdaterRefused
from scores.status import UpgradeDetail


class FakeUpdater:
    """Implements `topology.updater.Updater`. `asked` lists every request, `refuse` is the code of
    the next answers.
    """

    def __init__(self, device: str = "pi-01") -> None:
        self.device = device
        self.attempts: dict[str, Attempt] = {}
        self.asks: dict[str, Ask] = {}
        self.asked: list[Ask] = []
        self.looked = 0
        self.refuse = ""
        self.away = False
        self.busy = False

    def put(self, attempt_id: str, phase: str, **more: object) -> None:
        """Put an attempt into a phase."""
        ask = self.asks[attempt_id]
        detail = UpgradeDetail.model_validate(
            {
                "attemptId": attempt_id,
                "runUid": ask.run_uid,
                "deviceId": ask.device_id,
                "phase": phase,
                **more,
            }
        )
        self.attempts[attempt_id] = Attempt(detail)

    async def capabilities(self) -> Offer:
        self._answer()
        return Offer(1, ("AptFullUpgradeV1",))

    async def status(self, attempt_id: str) -> Attempt | None:
        self._answer()
        self.looked += 1
        return self.attempts.get(attempt_id)

    async def request(self, ask: Ask) -> Attempt:
        self._answer()
        self.asked.append(ask)
        if ask.device_id != self.device:
            raise UpdaterRefused("wrong-device", "this is another device")
        if self.asks.setdefault(ask.attempt_id, ask) != ask:
            raise UpdaterRefused(
                "attempt-conflict", "the attempt was asked for with another content"
            )
        if self.busy:
            del self.asks[ask.attempt_id]
            detail = UpgradeDetail(
                attemptId=ask.attempt_id,
                runUid=ask.run_uid,
                deviceId=ask.device_id,
                phase="blocked",
                reason="MutationActive",
                message="an agent upgrade is active",
            )
            return Attempt(detail, durable=False)
        if ask.attempt_id not in self.attempts:
            self.put(ask.attempt_id, "preflight")
        return self.attempts[ask.attempt_id]

    def _answer(self) -> None:
        if self.away:
            raise Transient("UpdaterUnavailable", "nobody answers", delay=10, phase="Blocked")
        if self.refuse:
            raise UpdaterRefused(self.refuse, "no")
