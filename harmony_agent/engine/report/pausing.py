"""Takes requests to pause and to resume, and ends each pause in its time.

A request names a word that was given out just now and is used once. Where this device believes only
what is signed, the request is signed as well. On any doubt nothing is paused, and nothing resumed.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final

from harmony_agent.core import pauses
from harmony_agent.core.changes import Moment
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import Key
from harmony_agent.core.signatures import Trust
from harmony_agent.engine.loops import AGAIN, Signal
from harmony_agent.engine.report.commands import BadRequest
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.topology import Clock
from scores.canonical import NotCanonical, read
from scores.manifest import InvalidManifest, validate
from scores.pause import DEVICE, MAX_REQUEST, PauseRequest
from scores.signatures import COMMAND

log = logging.getLogger(__name__)

KEEP_SECONDS: Final = 60.0
"""Seconds between two notes of how much is left: what a power cut may add to a pause."""
NONCE_SECONDS: Final = 60.0
_NONCES: Final = 64
_BUSY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05

Verb = Callable[[bytes], Awaitable[dict[str, Any]]]


class Pausing:
    """The verbs ``challenge``, ``pause`` and ``resume``, and the loop that ends pauses."""

    def __init__(
        self,
        device: str,
        state: DeviceState,
        clock: Clock,
        moment: Callable[[], Moment],
        *,
        trust: Trust,
        working: Callable[[Key], bool],
        look_again: Callable[[Collection[Key]], None],
        told: Callable[[], None],
    ) -> None:
        """`working` says if a pass over a key is under way, `look_again` queues keys, `told` has
        DeviceInfo written.
        """
        self._device = device
        self._state = state
        self._pauses = state.pauses
        self._clock = clock
        self._moment = moment
        self._trust = trust
        self._working = working
        self._look_again = look_again
        self._told = told
        self._changed = Signal()
        self._nonces: dict[str, float] = {}
        """each word that was given out and not used, with its monotonic time"""
        self._unwritten = self._pauses.found
        """the disk may hold a pause that ended"""

    def verbs(self) -> Mapping[str, Verb]:
        """For `Commands`."""
        return {"challenge": self._challenge, "pause": self._pause, "resume": self._resume}

    # -- requests

    async def _challenge(self, _request: bytes) -> dict[str, Any]:
        nonce = secrets.token_hex(16)
        self._nonces[nonce] = self._clock.monotonic()
        while len(self._nonces) > _NONCES:
            del self._nonces[next(iter(self._nonces))]
        return {"nonce": nonce}

    async def _pause(self, data: bytes) -> dict[str, Any]:
        asked = self._admitted("pause", data)
        scope = asked.deployment or DEVICE
        if asked.deployment is not None and asked.deployment not in self._state.deployments:
            raise BadRequest("unknown-deployment", "this device has no such deployment")
        await self._pauses.put(pauses.paused(scope, asked.seconds or 0, self._moment()))
        log.warning("paused: %s, for %d s", scope, asked.seconds, extra={"reason": "Paused"})
        self._differs([scope])
        busy = await self._busy(scope)
        return {"until": self._pauses.shown().get(scope, ""), "busy": busy}

    async def _resume(self, data: bytes) -> dict[str, Any]:
        asked = self._admitted("resume", data)
        held = self._pauses.shown()
        ended = [scope for scope in held if asked.deployment in (None, scope)]
        if ended:
            await self._pauses.end(ended)
            log.warning("resumed: %s", ", ".join(ended), extra={"reason": "Resumed"})
            self._differs(ended)
        still = asked.deployment is not None and held.get(DEVICE)
        return {"ended": ended, "until": still or ""}

    def _admitted(self, verb: str, data: bytes) -> PauseRequest:
        """Read a request, and believe it. Raises BadRequest."""
        try:
            value = read(data, MAX_REQUEST)
            refused = self._trust.verify(value, tag=COMMAND)
            if refused is not None:
                raise BadRequest(refused.reason, f"nothing was changed: {refused.message}")
            asked = validate(PauseRequest, value)
        except (NotCanonical, InvalidManifest) as error:
            raise BadRequest("bad-request", f"the request can't be read: {error.code}") from None
        if asked.device != self._device or asked.verb != verb:
            raise BadRequest("bad-request", "the request is for another device, or another verb")
        given = self._nonces.pop(asked.nonce, None)
        if given is None or self._clock.monotonic() - given > NONCE_SECONDS:
            raise BadRequest("nonce-unknown", "the request is old, or was sent before: ask again")
        return asked

    def _keys(self, scope: str) -> set[Key]:
        wanted = {key for key, one in self._state.desired.items() if _held(scope, one.deployment)}
        owned = {key for key, one in self._state.records.items() if _held(scope, one.deployment)}
        return wanted | owned

    async def _busy(self, scope: str) -> list[str]:
        """Wait a little for what is under way; names what still is."""
        end = self._clock.monotonic() + _BUSY_SECONDS
        while busy := [str(key) for key in sorted(self._keys(scope)) if self._working(key)]:
            if self._clock.monotonic() >= end:
                break
            await self._clock.sleep(_LOOK_SECONDS)
        return busy

    def _differs(self, scopes: Collection[str]) -> None:
        for scope in scopes:
            self._look_again(self._keys(scope))
        for deployment in self._state.deployments:
            self._state.changes.tell(deployment)
        self._changed.notify()
        self._told()

    # -- time

    async def run(self) -> None:
        """End pauses, and keep how much of them is left, until cancelled."""
        while True:
            over = self._pauses.expire(self._moment())
            if over:
                named = ", ".join(sorted(over))
                log.warning("resumed: the pause of %s ended", named, extra={"reason": "Resumed"})
                self._differs(over)
            self._unwritten |= bool(over)
            await self._changed.wait(await self._keep())

    async def _keep(self) -> float | None:
        """Write what is left; seconds until there is something to do."""
        before = self._pauses.shown()
        if not before and not self._unwritten:
            return None
        try:
            await self._pauses.keep(self._moment())
        except ResourceError as error:
            log.debug("cannot keep the pauses: %s", error)
            return AGAIN
        self._unwritten = False
        if self._pauses.shown() != before:  # the clock was set
            self._differs([])
        left = self._pauses.next_end(self._moment())
        return None if left is None else min(max(left, 0.0), KEEP_SECONDS)


def _held(scope: str, deployment: str) -> bool:
    return scope in (DEVICE, deployment)
