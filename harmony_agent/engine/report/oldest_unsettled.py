"""Age of the longest unsettled resource, in seconds.

Counts by the monotonic clock, because the wall clock may be set meanwhile. For the time before the
agent's start it takes `since` of the status, if the clock can be trusted.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_agent.core.resources import Key
from harmony_agent.topology import Clock
from scores.names import parse_time
from scores.status import SETTLED, ResourceStatus


class OldestUnsettled:
    """Asked with every heartbeat."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: dict[Key, float] = {}

    def oldest(self, statuses: Mapping[Key, ResourceStatus]) -> int:
        """Whole seconds; 0 where all is settled."""
        now = self._clock.monotonic()
        self._since = {
            key: self._since[key] if key in self._since else now - self._age(status)
            for key, status in statuses.items()
            if status.phase not in SETTLED
        }
        return int(now - min(self._since.values(), default=now))

    def _age(self, status: ResourceStatus) -> float:
        if not self._clock.synchronized():
            return 0.0
        return max(0.0, self._clock.now() - parse_time(status.since).timestamp())
