"""The next steps for one resource that `decide` knows. Pure types."""

from __future__ import annotations

from typing import Literal

from harmony_agent.core.actions import Act, Action
from harmony_agent.core.drift import DriftEpisode
from harmony_agent.core.frozen import frozen
from scores.status import ResourcePhase


@frozen()
class Settled:
    """As wanted. Probes decide whether it also works."""

    phase: ResourcePhase
    holds: frozenset[str] = frozenset()
    reason: str = ""
    message: str = ""
    again: float | None = None
    """when to look again, in seconds since 1970"""


@frozen()
class Gone:
    """Nothing of it is left: drop its record."""


@frozen()
class Release:
    """Leave it as it is and drop its record."""


@frozen()
class Claim:
    """Record that it is ours before anything is done to it, with the facts of now; then decide
    anew.
    """


@frozen()
class Execute:
    """Apply the actions in this order. `paced` names what counts them: a crash loop, or the repairs
    of a drift.
    """

    plan: Act[Action]
    paced: Literal["", "crash", "drift"] = ""
    episode: DriftEpisode | None = None


@frozen()
class Report:
    """Leave the difference as it is and tell it."""

    message: str
    episode: DriftEpisode


@frozen()
class Hold:
    """Do nothing now.

    `seconds` until the next look; None waits for an event or for one of `waits_for`. With `backoff`
    no event makes that look sooner.
    """

    phase: ResourcePhase
    reason: str
    message: str
    seconds: float | None = None
    backoff: bool = False
    waits_for: tuple[str, ...] = ()
    episode: DriftEpisode | None = None


Step = Settled | Gone | Release | Claim | Execute | Report | Hold
