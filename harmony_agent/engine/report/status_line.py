"""One sentence on how the device is, for ``systemctl status``: how many resources are ready, and
what is in the way.

Said when it differs, at most once in `PAUSE` seconds. Writes nowhere itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from harmony_agent.engine.state.deployment import Deployment
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology import Clock
from harmony_agent.topology.control_plane import Lost
from scores.pause import DEVICE
from scores.status import SETTLED, ResourceStatus

PAUSE: Final = 1.0
SHOWN: Final = 3
"""Deployments that are named."""
_LOST: Final = {
    "BucketMissing": "the bucket desired-state is missing",
    "Denied": "NATS denies this device its desired state",
}


class StatusLine:
    """Says the sentence anew whenever something that it tells of changed."""

    def __init__(self, state: DeviceState, clock: Clock, say: Callable[[str], None]) -> None:
        self._state = state
        self._clock = clock
        self._say = say
        self._changes = state.changes.subscribe()
        self._lost: Lost | None = None
        self._since = ""
        self._ledger_lost = False

    def lost(self, why: Lost | None, now: str) -> None:
        """Note why desired state can't be read since `now`; None: it can be read."""
        if why is None or self._lost is None or why.reason != self._lost.reason:
            self._lost, self._since = why, now
            self._changes.notify()

    def say_ledger_lost(self, lost: bool) -> None:
        """Note if the state directory is gone."""
        self._ledger_lost = lost
        self._changes.notify()

    async def run(self) -> None:
        """Say it until cancelled."""
        said = ""
        while True:
            text = sentence(
                self._state.statuses.values(),
                self._state.deployments.values(),
                self._lost,
                self._since,
                [name for name in self._state.lost.deployments() if self._state.remains(name)],
            )
            text += _paused(self._state.pauses.shown())
            if self._ledger_lost:
                text += "; the state directory is gone"
            if text != said:
                said = text
                self._say(text)
            await self._clock.sleep(PAUSE)
            await self._changes.wait()
            self._changes.take()


def _paused(pauses: Mapping[str, str]) -> str:
    told = [
        f"; {'all' if scope == DEVICE else scope} is paused until {until}"
        for scope, until in list(pauses.items())[:SHOWN]
    ]
    more = len(pauses) - len(told)
    return "".join(told) + (f"; {more} more are paused" if more else "")


def sentence(
    resources: Iterable[ResourceStatus],
    deployments: Iterable[Deployment],
    lost: Lost | None,
    since: str,
    forgotten: Sequence[str] = (),
) -> str:
    """``3 of 4 resources ready; NATS unreachable since …``. Pure."""
    phases = [status.phase for status in resources]
    ready = sum(phase in SETTLED for phase in phases)
    parts = [
        f"{ready} of {len(phases)} resources ready"
        if phases
        else "nothing is wanted of this device yet"
    ]
    refused = [
        f"{deployment.name} is {deployment.not_accepted.phase}"
        for deployment in deployments
        if deployment.not_accepted is not None
    ]
    parts += sorted(refused)[:SHOWN]
    if len(refused) > SHOWN:
        parts.append(f"{len(refused) - SHOWN} more deployments are not accepted")
    if forgotten:
        more = f" and {len(forgotten) - SHOWN} more" if len(forgotten) > SHOWN else ""
        parts.append(f"the memory of {', '.join(sorted(forgotten)[:SHOWN])}{more} was lost")
    if lost is not None:
        parts.append(f"{_LOST.get(lost.reason, 'NATS unreachable')} since {since}")
    return "; ".join(parts)
