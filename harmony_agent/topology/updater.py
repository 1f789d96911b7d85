"""Updater: what the device's root updater offers, and what it says of an attempt. No library."""

from __future__ import annotations

from dataclasses import field
from typing import Protocol

from harmony_agent.core.frozen import frozen
from scores.status import UpgradeDetail

ENDED = frozenset({"complete", "failed", "repair-required"})
"""Phases after which an attempt changes no more."""


class UpdaterRefused(Exception):
    """The updater answered with an error: its own code, and its sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@frozen()
class Offer:
    """Operations of the updater."""

    protocol: int
    operations: tuple[str, ...]


@frozen()
class Ask:
    """One attempt to be made; nothing in it changes what is done."""

    attempt_id: str
    run_uid: str
    device_id: str
    expires_at: str


@frozen()
class Attempt:
    """The updater's word on an attempt. `durable`: it has a journal, so asking again is not
    needed.
    """

    detail: UpgradeDetail
    durable: bool = field(default=True)

    @property
    def ended(self) -> bool:
        """Return whether it changes no more."""
        return self.detail.phase in ENDED


class Updater(Protocol):
    """The updater. Raises Transient UpdaterUnavailable where nobody answers, UpdaterRefused where
    it says no.
    """

    async def capabilities(self) -> Offer:
        """Ask for the offered operations."""
        ...

    async def status(self, attempt_id: str) -> Attempt | None:
        """Return the state of an attempt. None if the updater doesn't know it."""
        ...

    async def request(self, ask: Ask) -> Attempt:
        """Ask for the upgrade; the same request again gets the same attempt's state."""
        ...
