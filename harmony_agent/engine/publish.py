"""Writes what the device says of itself: statuses on change by CAS, DeviceInfo on change, a heartbeat each period.

A generation's outcome is written at once; what changes within one generation at most once a second a deployment; what
didn't change, never. Without NATS nothing is lost: the newest is written when it is back.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import anyio

from harmony_agent.core.status import deployment_status
from harmony_agent.engine.book import Book
from harmony_agent.topology import Clock
from harmony_agent.topology.control import BucketMissing, Conflict, ControlPlane, Unreachable
from scores.keys import ACTUAL, DeploymentKey
from scores.status import DeploymentStatus

log = logging.getLogger(__name__)

MIN_INTERVAL: Final = 1.0
"""Seconds between two writes of one deployment within one generation."""
SETTLE: Final = 0.1
"""Seconds that a new generation may take before it is said to be progressing."""
PATIENCE: Final = 5.0
"""The same after a restart of the agent, which is no news of the resources."""
RETRY: Final = 1.0
MAX_CONFLICTS: Final = 3


@dataclass(slots=True)
class _Pace:
    """When a deployment's status was written last, and what it was about."""

    about: tuple[object, ...] = ()
    since: float = 0.0
    told: bool = False
    at: float = float("-inf")
    settle: float = SETTLE

    def wait(self, about: tuple[object, ...], now: float, *, outcome: bool) -> float:
        """Seconds until the next write: an outcome is said at once, progress a little later, flapping once a second."""
        if about != self.about:
            self.settle = self.settle if not self.about else SETTLE
            self.about, self.since, self.told, self.at = about, now, False, float("-inf")
        if outcome and not self.told:
            return 0.0
        return max(self.at + MIN_INTERVAL, 0.0 if outcome else self.since + self.settle) - now


class Value:
    """One key that this device alone writes, by CAS and only when it differs."""

    def __init__(self, control: ControlPlane, bucket: str, key: str) -> None:
        self._control = control
        self._bucket = bucket
        self._key = key
        self._data: bytes | None = None
        self._revision: int | None = None
        self.conflicts = 0
        """writes that somebody else's write came in the way of: another agent with this device's id?"""

    def doubt(self) -> None:
        """What stands there has to be read anew: the bucket may be another one."""
        self._revision = None

    async def read(self) -> bytes | None:
        """What stands there now. Raises Unreachable, BucketMissing."""
        entry = await self._control.get(self._bucket, self._key)
        self._revision = entry.revision if entry else 0
        self._data = entry.data if entry else None
        return self._data

    async def write(self, data: bytes) -> bool:
        """Make `data` stand there; whether a write was needed. Raises Unreachable, BucketMissing, Conflict."""
        for attempt in range(MAX_CONFLICTS):
            if self._revision is None:
                await self.read()
            if self._data == data or self._revision is None:
                return False
            try:
                self._revision = await self._control.put(self._bucket, self._key, data, self._revision)
            except Conflict:
                self.conflicts += 1
                self._revision = None
                if attempt == MAX_CONFLICTS - 1:
                    raise
            except Unreachable:
                self._revision = None  # it may have been written all the same
                raise
            else:
                self._data = data
                return True
        return False


class Publisher:
    """Keeps ``actual-state`` as the book has it."""

    def __init__(self, device: str, book: Book, control: ControlPlane, clock: Clock) -> None:
        self._device = device
        self._book = book
        self._control = control
        self._clock = clock
        self._values: dict[str, Value] = {}
        self._due: dict[str, float] = {}
        self._paces: dict[str, _Pace] = {}
        self._changed = anyio.Event()

    def changed(self, deployment: str) -> None:
        """The deployment's status may differ now."""
        self._due[deployment] = self._clock.monotonic()
        self._changed.set()

    def doubt(self) -> None:
        """After a reconnect or a new snapshot: the bucket may be another one."""
        for value in self._values.values():
            value.doubt()
        for deployment in self._book.deployments:
            self.changed(deployment)

    def be_patient(self) -> None:
        """What is known now was restored: give it time to be looked at before saying that it progresses."""
        self._paces = {name: _Pace(settle=PATIENCE) for name in self._book.deployments}

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._changed = anyio.Event()
            now = self._clock.monotonic()
            for deployment in [name for name, due in self._due.items() if due <= now]:
                await self._publish(deployment)
            soonest = min(self._due.values(), default=None)
            with anyio.move_on_after(None if soonest is None else max(0.0, soonest - self._clock.monotonic())):
                await self._changed.wait()

    async def _publish(self, deployment: str) -> None:
        status = self.status(deployment)
        if status is None:
            del self._due[deployment]
            return
        now = self._clock.monotonic()
        outcome = status.phase not in ("Progressing", "Removing")
        pace = self._paces.setdefault(deployment, _Pace())
        wait = pace.wait((status.generation, status.rejected), now, outcome=outcome)
        if wait > 0:
            self._due[deployment] = now + wait
            return
        del self._due[deployment]
        value = self._values.get(deployment)
        try:
            if value is None:
                value = Value(self._control, ACTUAL, str(DeploymentKey(self._device, deployment)))
                self._keep_since(deployment, await value.read())
                self._values[deployment] = value
                status = self.status(deployment) or status
            await value.write(status.canonical())
            pace.at, pace.told = self._clock.monotonic(), pace.told or outcome
        except (Unreachable, BucketMissing) as error:
            log.debug("cannot write the status of %s: %s", deployment, error)
            self._later(deployment)
        except Conflict:
            log.warning(
                "%s: somebody else keeps writing this device's status: is there a second agent with its id?",
                deployment,
                extra={"deployment": deployment, "reason": "DuplicateAgent"},
            )
            self._later(deployment)
        await self._book.flush()

    def status(self, deployment: str) -> DeploymentStatus | None:
        """The fold; None where there is nothing to be said of the name."""
        entry = self._book.deployments.get(deployment)
        if entry is None or (entry.stored is None and entry.kept is None):
            return None
        return deployment_status(self._device, deployment, entry.enforced, entry.kept, self._book.resources(deployment))

    def _keep_since(self, deployment: str, data: bytes | None) -> None:
        """A restart of the agent is no change of the resources: since when they are so stays as it was written."""
        try:
            old = json.loads(data)["resources"] if data else {}
            for key in self._book.deployments[deployment].keys:
                was, status = old.get(str(key)), self._book.statuses.get(key)
                if was is None or status is None:
                    continue
                if (was["phase"], was["spec_digest"]) == (status.phase, status.spec_digest):
                    self._book.statuses[key] = status.model_copy(update={"since": was["since"]})
        except (ValueError, KeyError, TypeError):
            return  # somebody else's bytes: they are overwritten

    def _later(self, deployment: str) -> None:
        self._due[deployment] = self._clock.monotonic() + RETRY


async def every(clock: Clock, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    """Do `work` now and each `seconds`, counted from its beginning."""
    while True:
        began = clock.monotonic()
        await work()
        await clock.sleep(max(0.05, began + seconds - clock.monotonic()))
