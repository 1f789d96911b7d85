"""Follows this device's desired state, and hands each value to `acceptance`."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import anyio

from harmony_agent.engine.desired.acceptance import Acceptance
from harmony_agent.engine.loops import defect
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology import Clock
from harmony_agent.topology.control_plane import (
    ControlPlane,
    Entry,
    Event,
    Lost,
    Snapshot,
    Update,
)
from scores.keys import DeploymentKey, parse_deployment_key
from scores.names import is_name
from scores.status import MAX_NAMES

log = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 2.0
_MAX_ODD: Final = 100


class Intake:
    """Reads desired state, event by event."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        control: ControlPlane,
        clock: Clock,
        *,
        acceptance: Acceptance,
        on_snapshot: Callable[[], None],
        on_lost: Callable[[Lost | None], None],
    ) -> None:
        """`on_snapshot` is called with each new snapshot, `on_lost` when desired state can't be
        read, or can again.
        """
        self._device = device
        self._state = state
        self._control = control
        self._clock = clock
        self._acceptance = acceptance
        self._lock = anyio.Lock()
        self._odd: set[str] = set()
        self._gone: set[str] = set()
        self.revision = 0
        """the highest revision of desired-state that was seen"""
        self.lost: Lost | None = Lost("Unreachable", "not connected yet")
        """why desired state can't be read now; None while it can"""
        self._on_snapshot = on_snapshot
        self._on_lost = on_lost

    async def run(self) -> None:
        """Follow until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._judge_owned)
            tasks.start_soon(self._judge_paused)
            tasks.start_soon(self._judge_undecided)
            tasks.start_soon(self._judge_trials)
            while True:
                try:
                    async for event in self._control.desired():
                        await self.handle(event)
                except Exception as error:  # what was accepted is kept up meanwhile
                    defect("the reading of desired state", error)
                await self._clock.sleep(_RETRY_SECONDS)

    async def handle(self, event: Event) -> None:
        """Take one event in."""
        async with self._lock:
            if isinstance(event, Lost):
                if self.lost is None or self.lost.reason != event.reason:
                    log.warning(
                        "cannot read desired state (%s): working from what was accepted",
                        event.message,
                    )
                self.lost = event
                self._on_lost(event)
                return
            if self.lost is not None:
                self.lost = None
                self._on_lost(None)
            if isinstance(event, Update):
                await self._entry(event.entry)
            else:
                await self._snapshot(event)

    async def _judge_owned(self) -> None:
        """Judge again what was refused for a resource of another deployment."""
        while True:
            await self._state.released.wait()
            async with self._lock:
                await self._acceptance.judge_again(self._acceptance.owned)

    async def _judge_paused(self) -> None:
        """Judge again what came while its deployment was paused."""
        while True:
            await self._state.pauses.ended.wait()
            async with self._lock:
                await self._acceptance.judge_again(self._acceptance.paused)

    async def _judge_undecided(self) -> None:
        while True:
            await self._acceptance.doubtful.wait()
            await self._clock.sleep(_RETRY_SECONDS)
            async with self._lock:
                await self._acceptance.judge_again(self._acceptance.undecided)
                await self._find_forgotten()

    async def _judge_trials(self) -> None:
        """Go back from what doesn't converge in its time, also without a control plane."""
        while True:
            async with self._lock:
                seconds = await self._acceptance.judge_trials()
            await self._acceptance.tried.wait(seconds)

    async def _snapshot(self, event: Snapshot) -> None:
        self._on_snapshot()
        present = set()
        for entry in event.entries:
            await self._entry(entry)
            present.add(entry.key)
        self._odd &= present
        self._gone = {entry.key for entry in event.entries if entry.data is None}
        for name in self._acceptance.names():
            if str(DeploymentKey(self._device, name)) not in present:
                self._acceptance.missing(name)
        await self._find_forgotten()

    async def _find_forgotten(self) -> None:
        deleted = map(parse_deployment_key, self._gone)
        await self._acceptance.find_forgotten(
            [key.deployment for key in deleted if key is not None and key.device == self._device]
        )

    async def _entry(self, entry: Entry) -> None:
        self.revision = max(self.revision, entry.revision)
        key = parse_deployment_key(entry.key)
        if key is None or key.device != self._device or not is_name(key.deployment):
            self._say_odd(entry)
        elif entry.data is None:
            self._acceptance.missing(key.deployment)
        else:
            await self._acceptance.judge(key.deployment, entry.data)

    def _say_odd(self, entry: Entry) -> None:
        """A key that names no deployment can have no status either: the log tells of it once, and
        DeviceInfo.
        """
        key = entry.key
        if entry.data is None:
            self._odd.discard(key)
        elif key not in self._odd and len(self._odd) < _MAX_ODD:
            self._odd.add(key)
            log.warning(
                "ignores a key of desired-state that isn't <device>.<deployment>: %r", key[:128]
            )

    def ignored(self) -> list[str]:
        """Keys of desired-state that name no deployment, in order; at most `MAX_NAMES`."""
        shown = sorted(self._odd)[:MAX_NAMES]
        return ["".join(char if char.isprintable() else "?" for char in key[:256]) for key in shown]
