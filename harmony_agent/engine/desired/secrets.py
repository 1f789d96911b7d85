"""Follows the sealed secrets that anything wanted is made of, and keeps those that are believed.

A key that is gone from NATS takes nothing away: a secret is taken away by a signed entry that says
so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

import anyio

from harmony_agent.core.resources import Key, SecretState
from harmony_agent.core.secrets import NotBelieved, believe
from harmony_agent.core.signatures import Trust
from harmony_agent.engine.loops import defect
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology import Clock
from harmony_agent.topology.control_plane import BucketMissing, ControlPlane, Unreachable
from harmony_agent.topology.secrets import CannotOpen, SecretStore
from scores.keys import SECRETS
from scores.secrets import SealedSecret

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 60.0
"""Between two looks at all of them: some writes aren't heard."""
_RETRY_SECONDS: Final = 2.0
_AGAIN_SECONDS: Final = (0.0, 0.02, 0.1, 0.5)
"""Waits before looks at a secret that was heard of: a write may be heard before it is stored."""


class SecretIntake:
    """The one way by which a secret comes to this device."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        control: ControlPlane,
        store: SecretStore,
        *,
        trust: Trust,
        clock: Clock,
        queue: Callable[[Collection[Key]], None],
    ) -> None:
        """`queue` takes the keys that a secret changes."""
        self._device, self._state, self._control = device, state, control
        self._store, self._trust, self._queue = store, trust, queue
        self._clock = clock
        self._heard: set[str] = set()
        self._asked: set[str] = set()
        self._kept: dict[str, SealedSecret] = {}
        self._told: dict[str, str] = {}
        self._all_at = 0.0

    def restore(self) -> None:
        """Know what was kept before this start; NATS isn't needed."""
        self._kept.update(self._store.load())
        for name, found in self._kept.items():
            self._state.note_secret(state_of(name, found))

    async def run(self) -> None:
        """Run until cancelled."""
        async with anyio.create_task_group() as tasks:
            following = False
            while True:
                if not following and self._state.wanted_secrets():
                    following = True
                    tasks.start_soon(self._control.follow, SECRETS, self._hear)
                await self._state.wanted_anew.wait(await self._round())

    def _hear(self, name: str) -> None:
        """Look at this one soon; at all of them after a new connection."""
        if not name:
            self._asked.clear()
        self._heard.add(name)
        self._state.wanted_anew.notify()

    async def _round(self) -> float | None:
        """Look at what is due; the seconds until the next round. Without a secret it costs nothing."""
        wanted = self._state.wanted_secrets()
        heard, self._heard = self._heard & wanted, set()
        if not wanted:
            return None
        if (now := self._clock.monotonic()) >= self._all_at:
            self._asked.clear()
            self._all_at = now + LOOK_SECONDS
        good = True
        for name in sorted((wanted - self._asked) | heard):
            try:
                good &= await self._look(name, patient=name in heard)
            except Exception as error:  # the other ones go on
                defect(f"the secret {name}", error)
                good = False
        return max(0.05, self._all_at - self._clock.monotonic()) if good else _RETRY_SECONDS

    async def _look(self, name: str, *, patient: bool) -> bool:
        """Read one; False where it is to be read again soon."""
        before = self._version(name)
        for pause in _AGAIN_SECONDS if patient else (0.0,):
            await anyio.sleep(pause)
            try:
                entry = await self._control.get(SECRETS, f"{self._device}.{name}")
            except (Unreachable, BucketMissing) as error:
                self._note(name, f"{error}")
                return False
            if entry is not None and entry.data:
                await self._take(name, entry.data)
            if self._version(name) != before:
                break
        self._asked.add(name)
        self._note(name, self._told.get(name, ""))
        return True

    async def _take(self, name: str, data: bytes) -> None:
        known = self._kept.get(name)
        try:
            found = believe(data, self._device, name, self._trust, known)
            if found != known:
                await anyio.to_thread.run_sync(self._store.keep, found)
        except NotBelieved as error:
            self._refuse(name, f"{error.code}: {error}")
            return
        except CannotOpen as error:
            self._refuse(name, str(error))
            return
        self._told.pop(name, None)
        if found != known:
            self._kept[name] = found
            self._store.use(found)
            self._change(state_of(name, found))

    def _refuse(self, name: str, why: str) -> None:
        """Go on with the one before."""
        if self._told.get(name) != why:
            log.warning(
                "the secret %s isn't taken: %s", name, why, extra={"reason": "SecretRefused"}
            )
        self._told[name] = why

    def _version(self, name: str) -> int:
        found = self._state.secrets.get(name)
        return 0 if found is None else found.version

    def _note(self, name: str, why: str) -> None:
        """Say why there is none."""
        found = self._state.secrets.get(name, SecretState(name))
        if not found.version:
            self._change(SecretState(name, 0, found.why if found.asked and not why else why, True))

    def _change(self, found: SecretState) -> None:
        keys = self._state.note_secret(found)
        if keys:
            self._queue(keys)


def state_of(name: str, found: SealedSecret) -> SecretState:
    """How the device has a secret, by what it keeps of it."""
    why = "it was taken back" if found.removed else ""
    return SecretState(name, 0 if found.removed else found.version, why, asked=True)
