"""Policy of a rollout: `rollout` of a deployment in the roster. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from harmony_fleet.manifests import duration
from scores.base import Model

MAX_SPAN: Final = 7 * 86_400.0
_SHARE: Final = re.compile(r"([1-9][0-9]?|100)%")
_WINDOW: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d) UTC")


def _share(value: str) -> str:
    if not _SHARE.fullmatch(value):
        raise PydanticCustomError(
            "InvalidBudget", "must be a number of devices or a share of them, as 2 or 10%"
        )
    return value


def _span(value: str) -> str:
    span = duration.seconds(value)
    if span is None or span > MAX_SPAN:
        raise PydanticCustomError(
            "InvalidDuration", "must be a span of time up to 7d, as 30s or 10m"
        )
    return value


def _window(value: str) -> str:
    found = _WINDOW.fullmatch(value)
    if found is None or found[1] + found[2] == found[3] + found[4]:
        raise PydanticCustomError("InvalidWindow", "must be two times of a day, as 01:00-05:00 UTC")
    return value


Budget = Annotated[int, Field(ge=1, le=100_000)]
Share = Annotated[str, AfterValidator(_share)]
Span = Annotated[str, AfterValidator(_span)]
Window = Annotated[str, AfterValidator(_window)]


class RolloutPolicy(Model):
    """Waves of a changed deployment, and what stops them.

    A device counts once it was Converged for `min_ready` and a heartbeat came after that. One that
    isn't there `wave_timeout` after it was asked has failed. New devices are asked inside `window`
    alone.
    """

    canary: Budget | None = None
    max_unavailable: Budget | Share = "25%"
    wave_timeout: Span = "10m"
    min_ready: Span = "30s"
    on_failure: Literal["pause", "rollback"] = "pause"
    window: Window | None = None

    def budget(self, devices: int) -> int:
        """The number of `devices` that may be unavailable at once; one at the least."""
        most = self.max_unavailable
        if isinstance(most, str):
            most = devices * int(most.removesuffix("%")) // 100
        return max(1, most)

    def opens(self, now: datetime) -> bool:
        """Return whether `now` is inside the window, which may go over midnight."""
        if self.window is None:
            return True
        first, last = (
            time.fromisoformat(part) for part in self.window.removesuffix(" UTC").split("-")
        )
        at = now.astimezone(UTC).time()
        return first <= at < last if first < last else at >= first or at < last

    def timeout_seconds(self) -> float:
        """`wave_timeout` in seconds."""
        return duration.seconds(self.wave_timeout) or 0.0

    def ready_seconds(self) -> float:
        """`min_ready` in seconds."""
        return duration.seconds(self.min_ready) or 0.0
