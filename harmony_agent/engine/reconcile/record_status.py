"""Record how a pass ended: set the status, log a change, wake those who wait.

Decides nothing: the outcome is handed in.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_instance import KindInstance
from scores.base import Score
from scores.status import ResourceStatus

log = logging.getLogger(__name__)


class StatusRecorder:
    """Writes statuses."""

    def __init__(
        self,
        state: DeviceState,
        kinds: Mapping[str, KindInstance],
        seen: Mapping[str, Mapping[str, object]],
        times: Times,
        settled: Callable[[str], None],
    ) -> None:
        """`seen` is what was last observed, by kind and name; `settled` is called with a key that
        has just settled.
        """
        self._state = state
        self._kinds = kinds
        self._seen = seen
        self._times = times
        self._settled = settled

    def record_status(
        self,
        key: Key,
        desired: Desired[Score] | None,
        record: OwnershipRecord | None,
        outcome: Outcome,
    ) -> None:
        """Write the outcome into the state, and wake the resources that waited for it."""
        if self._state.desired.get(key) is not desired:
            return  # the outcome is of an older spec; the newer one is queued
        source = desired or record
        if source is None:
            return
        digest = desired.digest if desired else record.spec_digest if record else ""
        old, kind = self._state.statuses.get(key), self._kinds.get(key.kind)
        bad = outcome.detail is None and outcome.phase in ("Degraded", "Blocked", "Failed")
        if bad and old is not None and kind is not None:
            seen, owned = self._seen[key.kind].get(key.name), self._state.records.get(key)
            outcome = replace(outcome, detail=kind.detail(owned, seen))
        status = resource_status(old, outcome, source.generation, digest, self._times.wire_now())
        _log_change(key, source.deployment, old, status)
        if self._state.set_status(key, source.deployment, status):
            self._settled(str(key))


def _log_change(key: Key, deployment: str, old: ResourceStatus | None, new: ResourceStatus) -> None:
    """Log that a resource has another phase or reason than before."""
    if old is None or (old.phase, old.reason) != (new.phase, new.reason):
        fields = {
            "resource": str(key),
            "deployment": deployment,
            "generation": new.generation,
            "reason": new.reason or None,
        }
        text = f" {new.reason}: {new.message}" if new.reason else ""
        level = (
            logging.WARNING
            if new.phase in ("Degraded", "Failed", "Blocked", "Unknown")
            else logging.INFO
        )
        log.log(level, "%s is %s%s", key, new.phase, text, extra=fields)
