"""A device is asked to keep what runs and change nothing for a while, and to go on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.client.verbs import ask, unreadable
from harmony_fleet.errors import DeviceFailed, Unreachable
from harmony_fleet.manifests.signing import Signing
from harmony_fleet.nats.kv import Store
from scores.names import parse_time
from scores.pause import PauseRequest

_HINTS: Final = {
    "unknown-deployment": "see what it has: harmony status --device DEVICE",
    "SignatureMissing": "do it where the signing keys are: harmony fleet key list",
    "SignatureUnknownKey": "do it where the keys are that the device trusts; see harmony fleet doctor",
    "nonce-unknown": "try again",
}


@dataclass(frozen=True, slots=True)
class Paused:
    """The end of a pause by the device's clock, and the resources whose step is still under way."""

    until: str
    busy: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resumed:
    """The pauses that were ended, ``*`` for the device's own; and the end of the device's own, where
    that goes on: "" else.
    """

    ended: tuple[str, ...]
    until: str = ""


@dataclass(frozen=True, slots=True)
class Asker:
    """The device, and the keys that sign what it is asked."""

    store: Store
    device: str
    signing: Signing

    async def pause(self, deployment: str | None, seconds: int) -> Paused:
        """Have it pause a deployment, or all. Raises Unreachable, DeviceFailed."""
        answer = await self._ask("pause", {"deployment": deployment, "seconds": seconds})
        return Paused(self._time(answer.get("until")), self._names(answer.get("busy")))

    async def resume(self, deployment: str | None) -> Resumed:
        """Have it go on. Raises Unreachable, DeviceFailed."""
        answer = await self._ask("resume", {"deployment": deployment})
        until = answer.get("until")
        return Resumed(self._names(answer.get("ended")), self._time(until) if until else "")

    async def _ask(self, verb: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Have the device give a word, and answer it, signed with each active key."""
        nonce = await self._challenge(verb)
        fields = {"verb": verb, "device": self.device, "nonce": nonce, **asked}
        try:
            request = PauseRequest.model_validate(fields)
        except ValueError:
            raise unreadable(self.device) from None
        message = request.message()
        signatures = [key.signature(message) for key in self.signing.keys]
        signed = request.model_copy(update={"signatures": signatures})
        try:
            return await ask(self.store, self.device, verb, signed.wire(), f"{verb} it")
        except DeviceFailed as error:
            error.hint = _HINTS.get(error.code, error.hint)
            raise

    async def _challenge(self, verb: str) -> object:
        try:
            given = await ask(self.store, self.device, "challenge", {}, f"{verb} it")
        except Unreachable as error:
            if not await self._is_there():
                raise
            raise DeviceFailed(
                "AgentTooOld",
                f"cannot {verb} {self.device}: its agent is of an older version",
                "upgrade harmony-agent there",
            ) from error
        return given.get("nonce")

    async def _is_there(self) -> bool:
        try:
            await ask(self.store, self.device, "ping", {}, "answer")
        except (Unreachable, DeviceFailed):
            return False
        return True

    def _time(self, told: object) -> str:
        try:
            parse_time(str(told))
        except ValueError:
            raise unreadable(self.device) from None
        return str(told)

    def _names(self, told: object) -> tuple[str, ...]:
        if not isinstance(told, list):
            raise unreadable(self.device)
        return tuple(map(str, told))
