"""Secrets in memory: `topology.secrets.Secrets`, with a hand that gives and takes them."""

from __future__ import annotations

import hashlib
import hmac

from harmony_agent.core.errors import Transient
from harmony_agent.core.resources import SecretState


class FakeSecrets:
    """A device that has been given what a test gives it."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, bytes]] = {}
        self._last = 0

    def give(self, name: str, value: bytes) -> None:
        """Seal another one."""
        self._last += 1
        self._values[name] = (self._last, value)

    def take(self, name: str) -> None:
        """Take it back."""
        self._values.pop(name, None)

    def state(self, name: str) -> SecretState:
        """How the engine would know it."""
        version = self._values[name][0] if name in self._values else 0
        return SecretState(name, version, asked=True)

    def value(self, name: str) -> bytes:
        if name not in self._values:
            raise Transient("SecretMissing", f"cannot use the secret {name}", phase="Blocked")
        return self._values[name][1]

    def digest(self, content: bytes) -> str:
        return "sha256:" + hmac.new(b"device", content, hashlib.sha256).hexdigest()
