"""Secrets on the device: which sealed ones are believed, and what waits for one that is missing.
Pure.
"""

from __future__ import annotations

from typing import Final

from harmony_agent.core.actions import Wait
from harmony_agent.core.resources import Desired
from harmony_agent.core.signatures import Trust
from scores.base import Score
from scores.canonical import NotCanonical, read
from scores.manifest import InvalidManifest, validate
from scores.secrets import DOMAIN, MAX_SEALED, SealedSecret

_SOON: Final = 1.0
_LATER: Final = 30.0


class NotBelieved(Exception):
    """What stands in NATS is no secret for this device. Names a code, never a value."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def believe(
    data: bytes, device: str, name: str, trust: Trust, known: SealedSecret | None
) -> SealedSecret:
    """A sealed secret that is believed, newer than the `known` one; `known` where it is that one.
    Raises NotBelieved.
    """
    try:
        value = read(data, MAX_SEALED + 8192)
    except NotCanonical as error:
        raise NotBelieved(error.code, str(error)) from None
    refusal = trust.verify(value, tag=DOMAIN)
    if refusal is not None:
        raise NotBelieved(refusal.reason, refusal.message)
    try:
        found = validate(SealedSecret, value)
    except InvalidManifest as error:
        raise NotBelieved(error.code, str(error)) from None
    if (found.device, found.name) != (device, name):
        raise NotBelieved("KeyMismatch", "it is another device's or another secret")
    if known is not None and found.version <= known.version:
        if found.model_copy(update={"signatures": known.signatures}) == known:
            return known
        raise NotBelieved("StaleVersion", "it is older than the one that this device has had")
    return found


def missing(desired: Desired[Score]) -> Wait | None:
    """Wait for the first secret that the device hasn't. None if it has all. What runs goes on."""
    lacking = next((one for one in desired.secrets if not one.version), None)
    if lacking is None:
        return None
    if not lacking.asked:
        return Wait("SecretMissing", f"asks for the secret {lacking.name}", "Progressing", _SOON)
    why = f" ({lacking.why})" if lacking.why else ""
    text = (
        f"there is no secret {lacking.name} for this device{why}: "
        f"harmony secret set {lacking.name} --device NAME"
    )
    return Wait("SecretMissing", text, "Blocked", _LATER)
