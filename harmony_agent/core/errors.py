"""Errors of work on a resource.

There is no third class: waiting is a plan (`reconciler.Wait`), not an error.
"""

from __future__ import annotations

from scores.status import ResourcePhase


class ResourceError(Exception):
    """`reason` is a code of ``docs/reasons/``; the message says what cannot be done and what to do;
    no values.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Transient(ResourceError):
    """May go well later; retried with backoff, or after `delay` seconds where the cause sets one.

    `phase` is what the status shows meanwhile: Degraded, Blocked (an outside cause) or Unknown
    (couldn't be looked at).
    """

    def __init__(
        self,
        reason: str,
        message: str,
        *,
        delay: float | None = None,
        phase: ResourcePhase = "Degraded",
    ) -> None:
        super().__init__(reason, message)
        self.delay = delay
        self.phase = phase


class Terminal(ResourceError):
    """Won't go well until the spec changes."""
