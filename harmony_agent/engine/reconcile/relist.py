"""The relist: lists each kind by itself, each period, and queues what differs. Events make a look
sooner.

A list that fails leaves the known state as it is and is itself reported: the resources of its kind
are Unknown until a list succeeds.
"""

from __future__ import annotations

import logging
from typing import Final

from harmony_agent.core.errors import ResourceError
from harmony_agent.core.pleg import events
from harmony_agent.core.resources import Key
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.loops import defect
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.reconcile.work_queue import WorkQueue
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.engine.state.kind_view import DeviceStateView
from scores.status import SETTLED, ResourceStatus

log = logging.getLogger(__name__)

WATCH_AGAIN: Final = 10.0
"""Seconds until events are asked for again, after they ended."""


class Relister:
    """Looks at one kind."""

    def __init__(
        self,
        reconciler: KindInstance,
        seen: dict[str, object],
        state: DeviceState,
        queue: WorkQueue,
        times: Times,
    ) -> None:
        """`seen` is shared with the worker: what a pass saw is no change to the next relist."""
        self.kind = reconciler.kind
        self._reconciler = reconciler
        self._seen = seen
        self._state = state
        self._view = DeviceStateView(state, self.kind)
        self._queue = queue
        self._times = times
        self._at = self._turned = times.clock.monotonic()
        self._asking = False
        self._failing = ""
        self._before: dict[Key, ResourceStatus] = {}
        """what was said of each before it was Unknown"""

    def age(self) -> float:
        """Seconds since the last look that succeeded; 0 where there is nothing to look at."""
        return self._times.clock.monotonic() - self._at

    def idle(self) -> float:
        """Seconds since the last look began or ended, however it went; 0 while it waits for an
        answer.
        """
        return 0.0 if self._asking else self._times.clock.monotonic() - self._turned

    async def relist(self) -> bool:
        """List once, and queue what differs. A failed list is reported; the next comes with the period."""
        self._asking = True
        try:
            await self._relist()
        finally:
            self._asking, self._turned = False, self._times.clock.monotonic()
        return True

    async def _relist(self) -> None:
        if not self._view.names():
            self._at = self._times.clock.monotonic()
            return
        before = dict(self._seen)
        try:
            found = await self._reconciler.relist()
        except ResourceError as error:
            self._unknown(error.reason, str(error))
            return
        except Exception as error:  # it must not stop the other kinds
            name = defect(f"the relist of {self.kind}", error)
            self._unknown("InternalError", f"a defect of the agent ({name}): see its log")
            return
        self._at = self._times.clock.monotonic()
        names = events(before, found)
        # what a pass observed while this look was under way is newer than the look
        names = {name for name in names if self._seen.get(name) == before.get(name)}
        for name in names:
            self._queue.add(Key(self.kind, name))
        if self._failing:
            self._failing = ""
            log.info("%s can be looked at again", self.kind)
            self._known_again()

    async def watch(self) -> None:
        """Queue a name whenever an event says that it may differ; until cancelled."""
        while True:
            try:
                await self._reconciler.watch(lambda name: self._queue.add(Key(self.kind, name)))
            except Exception as error:  # events only make a look sooner
                defect(f"the events of {self.kind}", error)
            await self._times.clock.sleep(WATCH_AGAIN)

    def _unknown(self, reason: str, message: str) -> None:
        if self._failing != reason:
            log.warning(
                "cannot look at %s: %s: %s", self.kind, reason, message, extra={"reason": reason}
            )
        self._failing = reason
        for key, desired in list(self._state.desired.items()):
            old = self._state.statuses.get(key)
            if key.kind == self.kind and old is not None and old.phase not in ("Failed", "Pending"):
                outcome = Outcome("Unknown", reason, message, drift=old.drift)
                status = resource_status(
                    old, outcome, desired.generation, desired.digest, self._times.wire_now()
                )
                if old.phase != "Unknown":
                    self._before[key] = old
                self._state.set_status(key, desired.deployment, status)

    def _known_again(self) -> None:
        """Queue a pass over each resource now, instead of at its next retry.

        A pass that is under way may take long, as for an image that doesn't come: its resource is
        shown as Progressing again. A settled resource stays Unknown until it is observed.
        """
        before, self._before = self._before, {}
        for key, status in list(self._state.statuses.items()):
            if key.kind != self.kind or status.phase != "Unknown":
                continue
            desired, old = self._state.desired.get(key), before.get(key)
            same = desired and old and old.spec_digest == desired.digest
            if desired and old and same and old.phase not in SETTLED and self._queue.working(key):
                self._state.set_status(key, desired.deployment, old)
            self._queue.release(key)
            self._queue.add(key)
