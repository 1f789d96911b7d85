"""Observed state of an attempt. Pure."""

from __future__ import annotations

from harmony_agent.core.frozen import frozen
from harmony_agent.topology.updater import Attempt


@frozen()
class Observed:
    """Answer of the updater.

    `known`: it has answered before. `over`: it ended long enough ago to release it.
    """

    attempt: Attempt | None
    known: bool = False
    over: bool = False
