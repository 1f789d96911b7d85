"""Secrets: the values that were sealed for this device, as kinds and the engine see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from harmony_agent.core.errors import Transient
from scores.secrets import SealedSecret, Secret


class CannotOpen(Exception):
    """It is sealed for another key, or for something else, or there is no key here."""


class Secrets(Protocol):
    """The values that this device has been given.

    Nothing that a caller is handed may go into a record, a status, a log or an error.
    """

    def value(self, name: str) -> bytes:
        """The value. Raises Transient ``SecretMissing``.

        How another kind gets one (a registry's password, say): name it in the Score by
        `scores.secrets.Secret`, return the name from `Score.secret_names`, wait in the plan as long as
        `core.secrets.missing` says so, and ask for the value in `apply`. A new version changes
        `Desired.secrets`, and the resource is looked at again.
        """
        ...

    def digest(self, content: bytes) -> str:
        """Digest of content that holds a secret: keyed, so that nobody without the device's key
        can try values against it.
        """
        ...


class NoSecrets:
    """`Secrets` of what has been given none."""

    def value(self, name: str) -> bytes:
        """Raise Transient ``SecretMissing``."""
        raise Transient("SecretMissing", f"there is no secret {name} here", phase="Blocked")

    def digest(self, content: bytes) -> str:
        """Nothing that holds a secret comes here."""
        del content
        raise Transient("SecretMissing", "there are no secrets here", phase="Blocked")


NO_SECRETS: Final[Secrets] = NoSecrets()


class SecretStore(Protocol):
    """The sealed secrets that the device keeps. Durable when a call returns."""

    def load(self) -> Mapping[str, SealedSecret]:
        """All of them, also those that were removed, by name."""
        ...

    def keep(self, found: SealedSecret) -> None:
        """Keep it on the disk in place of the one before. Raises CannotOpen, OSError."""
        ...

    def use(self, found: SealedSecret) -> None:
        """Give this one out from now on: at the moment when the engine knows its version."""
        ...


def fill(template: Sequence[str | Secret], secrets: Secrets) -> bytes:
    """The content of a template. Raises Transient ``SecretMissing``, ``SecretUnfit``."""
    return b"".join(
        one.encode() if isinstance(one, str) else secrets.value(one.secret) for one in template
    )


def text(value: str | Secret, secrets: Secrets) -> str:
    """A variable's value. Raises Transient ``SecretMissing``, ``SecretUnfit``."""
    if isinstance(value, str):
        return value
    try:
        found = secrets.value(value.secret).decode()
    except UnicodeDecodeError:
        found = "\0"
    if "\0" in found:
        said = f"the secret {value.secret} is no text, and a variable has to be: mount it as a file"
        raise Transient("SecretUnfit", said, phase="Blocked", delay=30.0)
    return found
