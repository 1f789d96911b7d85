"""Writes the status of each deployment into actual-state, by CAS and on change.

The outcome of a generation is written at once. Within one generation, a deployment is written at
most once a second. An unchanged status is never written. Without NATS nothing is lost: the newest
status is written when NATS is back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.status import Texts, bounded, deployment_phase, deployment_status, rejection
from harmony_agent.engine.loops import AGAIN, defect
from harmony_agent.engine.report.owned_key import OwnedKey
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.lost import LOST
from harmony_agent.topology import Clock
from harmony_agent.topology.control_plane import BucketMissing, Conflict, ControlPlane, Unreachable
from scores.keys import ACTUAL, DeploymentKey
from scores.status import DeploymentPhase, DeploymentStatus, PauseInfo

log = logging.getLogger(__name__)

MIN_INTERVAL: Final = 1.0
"""Seconds between two writes of one deployment within one generation."""
SETTLE: Final = 0.1
"""Seconds that a new generation may take before it is said to be progressing."""
PATIENCE: Final = 5.0
"""The same after a restart of the agent, which is no news of the resources."""
_OVERRULED: Final = ("Converged", "Progressing", "Degraded")
_TWIN: Final = {
    "phase": "Degraded",
    "reason": "DuplicateAgent",
    "message": "another agent writes as this device, so this may be its word: give one of them another device_id",
}
_LEDGER_LOST: Final = {
    "phase": "Degraded",
    "reason": "LedgerLost",
    "message": "the state directory was taken away and can't be made again: what was accepted is kept up from memory "
    "until the agent ends; make the directory, or let the agent make it",
}


def _memory_lost(deployment: str, remains: Sequence[str]) -> Mapping[str, str]:
    """Status of a deployment with remains that the ledger doesn't know."""
    named = ", ".join(remains[:5]) + (f" and {len(remains) - 5} more" if len(remains) > 5 else "")
    text = (
        f"the device's memory was lost, and {named} may stand there without being known as its own: "
        f"harmony adopt takes that back, harmony delete {deployment} --remains takes it off"
    )
    return {"phase": "Degraded", "reason": LOST, "message": text}


@dataclass(slots=True)
class _Pace:
    """Time and content of the last write of a deployment's status."""

    about: tuple[object, ...] = ()
    since: float = 0.0
    told: bool = False
    at: float = float("-inf")
    settle: float = SETTLE

    def wait(self, about: tuple[object, ...], now: float, *, outcome: bool) -> float:
        """Seconds until the next write.

        An outcome is written at once, progress a little later, flapping once a second.
        """
        if about != self.about:
            self.settle = self.settle if not self.about else SETTLE
            self.about, self.since, self.told, self.at = about, now, False, float("-inf")
        if outcome and not self.told:
            return 0.0
        return max(self.at + MIN_INTERVAL, 0.0 if outcome else self.since + self.settle) - now


class Publisher:
    """Keeps ``actual-state`` as the device's state is."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        control: ControlPlane,
        clock: Clock,
        recall: Callable[[str, bytes | None], None],
    ) -> None:
        """`recall` is called with what stands there of a deployment, before it is written for the
        first time.
        """
        self._device = device
        self._recall = recall
        self._state = state
        self._control = control
        self._clock = clock
        self._values: dict[str, OwnedKey] = {}
        self._due: dict[str, float] = {}
        self._paces: dict[str, _Pace] = {}
        self._changes = state.changes.subscribe()
        self.twin = False
        """whether a second agent writes as this device"""
        self._ledger_lost = False
        self._newest = self._turn = 0
        self._texts: dict[str, Texts] = {}

    def invalidate(self) -> None:
        """After a reconnect or a new snapshot: the bucket may be another one."""
        for value in self._values.values():
            value.invalidate()
        self.all_changed()

    async def look(self) -> None:
        """Notice statuses that others deleted, purged or replaced, and write them again.

        One question tells if anybody wrote since. Another asks for the value of one deployment, each
        in turn. Raises as `ControlPlane.newest`.
        """
        newest = await self._control.newest(ACTUAL, str(DeploymentKey(self._device, "*")))
        found = newest.revision if newest is not None else 0
        values = sorted(self._values.items())
        if found in (self._newest, max((value.revision for _, value in values), default=0)):
            self._turn += 1
            values = [values[self._turn % len(values)]] if len(values) > 1 else []
        self._newest = found
        for deployment, value in values:
            if not await value.stands():
                log.warning(
                    "%s: others changed its status in actual-state: writing it again", deployment
                )
                self._changes.add(deployment)

    def all_changed(self) -> None:
        """Every status may differ now."""
        for deployment in self._state.deployments:
            self._changes.add(deployment)

    def say_twin(self, seen: bool) -> None:
        """Note if a second agent writes as this device; every status tells it."""
        self.twin = seen
        self.all_changed()

    def say_ledger_lost(self, lost: bool) -> None:
        """Note if the state directory is gone; every status tells it."""
        self._ledger_lost = lost
        self.all_changed()

    def be_patient(self) -> None:
        """Give restored statuses time before they are shown as progressing."""
        self._paces = {name: _Pace(settle=PATIENCE) for name in self._state.deployments}

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            now = self._clock.monotonic()
            self._due |= dict.fromkeys(self._changes.take(), now)
            for deployment in [name for name, due in self._due.items() if due <= now]:
                try:
                    await self._publish(deployment)
                except Exception as error:  # the others' statuses go on
                    defect(f"the status of {deployment}", error)
                    self._later(deployment)
            soonest = min(self._due.values(), default=None)
            await self._changes.wait(
                None if soonest is None else max(0.0, soonest - self._clock.monotonic())
            )

    async def _publish(self, deployment: str) -> None:
        phase = self._phase(deployment)
        if phase is None:
            del self._due[deployment]
            return
        now = self._clock.monotonic()
        outcome = phase not in ("Progressing", "Removing")
        pace = self._paces.setdefault(deployment, _Pace())
        wait = pace.wait(self._about(deployment), now, outcome=outcome)
        if wait > 0:
            self._due[deployment] = now + wait
            return
        status = self.status(deployment)
        del self._due[deployment]
        if status is None:
            return
        try:
            await self._write(deployment, status)
            pace.at, pace.told = self._clock.monotonic(), pace.told or outcome
        except (Unreachable, BucketMissing, Conflict) as error:
            log.debug("cannot write the status of %s: %s", deployment, error)
            self._later(deployment)
        await self._flush(deployment)

    async def _write(self, deployment: str, status: DeploymentStatus) -> None:
        value = self._values.get(deployment)
        if value is None:
            value = OwnedKey(self._control, ACTUAL, str(DeploymentKey(self._device, deployment)))
            found = await value.read()
            self._recall(deployment, found)
            self._keep_since(deployment, found)
            self._values[deployment] = value
            status = self.status(deployment) or status
        await value.write(bounded(status, self._texts.setdefault(deployment, {})))

    async def _flush(self, deployment: str) -> None:
        """Make what the statuses say durable, too.

        A full disk delays this, and makes nothing wrong.
        """
        try:
            await self._state.records.flush()
        except ResourceError as error:
            log.debug("cannot write the ledger: %s", error)
            self._later(deployment)

    def _phase(self, deployment: str) -> DeploymentPhase | None:
        """Compute the phase at a small part of the cost of `status`.

        Each change of a thousand resources asks for it.
        """
        entry = self._state.deployments.get(deployment)
        if entry is None or (entry.stored is None and entry.not_accepted is None):
            return None
        phase = deployment_phase(entry.enforced, entry.not_accepted, self._state.phases(deployment))
        return "Degraded" if self._overruling(deployment, phase) else phase

    def _overruling(self, deployment: str, phase: DeploymentPhase) -> Mapping[str, str] | None:
        """Return the status that overrules the fold."""
        refused = self._state.deployments[deployment].not_accepted
        gone = refused is not None and refused.reason == "DesiredStateMissing"
        if (gone or phase in ("Removing", "Removed", *_OVERRULED)) and (
            remains := self._state.remains(deployment)
        ):
            return _memory_lost(deployment, sorted(map(str, remains)))
        over = _TWIN if self.twin else _LEDGER_LOST if self._ledger_lost else None
        return over if phase in _OVERRULED else None

    def _about(self, deployment: str) -> tuple[object, ...]:
        """Key of a status: a status with another key is written again at once."""
        entry = self._state.deployments[deployment]
        return (
            entry.enforced.generation if entry.enforced else None,
            rejection(entry.not_accepted),
        )

    def status(self, deployment: str) -> DeploymentStatus | None:
        """The fold; None where there is nothing to be said of the name."""
        entry = self._state.deployments.get(deployment)
        if entry is None or (entry.stored is None and entry.not_accepted is None):
            return None
        status = deployment_status(
            self._device,
            deployment,
            entry.enforced,
            entry.not_accepted,
            self._state.resources(deployment),
        )
        phase = deployment_phase(entry.enforced, entry.not_accepted, self._state.phases(deployment))
        more = {**(self._overruling(deployment, phase) or {}), **self._paused(deployment)}
        return status.model_copy(update=more) if more else status

    def _paused(self, deployment: str) -> dict[str, PauseInfo]:
        until, own = self._state.pauses.until(deployment), self._state.pauses.shown()
        if not until:
            return {}
        alone = own.get(deployment) == until
        return {"paused": PauseInfo(scope="deployment" if alone else "device", until=until)}

    def _keep_since(self, deployment: str, data: bytes | None) -> None:
        """Keep `since` as it was written, because a restart of the agent changes no resource."""
        try:
            old = DeploymentStatus.model_validate_json(data or b"{}").resources
        except ValidationError:
            return  # nothing, or somebody else's bytes: they are overwritten
        for key in self._state.deployments[deployment].keys:
            was, status = old.get(str(key)), self._state.statuses.get(key)
            if was is None or status is None:
                continue
            if (was.phase, was.spec_digest) == (status.phase, status.spec_digest):
                self._state.statuses[key] = status.model_copy(update={"since": was.since})

    def _later(self, deployment: str) -> None:
        self._due[deployment] = self._clock.monotonic() + AGAIN
