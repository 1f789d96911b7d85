"""Context of a pass over one resource: spec, kind, retry state, time.

No behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from harmony_agent.core.actions import Action
from harmony_agent.core.changes import Moment
from harmony_agent.core.decide import RetryState
from harmony_agent.core.frozen import frozen
from harmony_agent.core.resources import Desired, Key, OwnershipRecord
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.topology import Clock
from scores.base import Score
from scores.status import Detail, Drift


@frozen()
class HealthVerdict:
    """Results of an instance's probes. Without probes it is ready as soon as it runs."""

    ready: bool
    alive: bool = True
    was_ready: bool = False
    why: str = ""


class HealthTracker(Protocol):
    """Source of health for the worker; see `engine.reconcile.health`."""

    def track(self, key: Key, spec: Score, instance: str, *, ready_before: bool) -> HealthVerdict:
        """Probe `instance` from now on; what is known until now."""
        ...

    def forget(self, key: Key) -> None:
        """It isn't wanted any more."""
        ...


@dataclass(slots=True)
class ReconcileContext:
    """One pass over one wanted resource. `record` is the ledger's at the last look."""

    key: Key
    desired: Desired[Score]
    reconciler: KindInstance
    memory: RetryState
    observed: object | None = None
    record: OwnershipRecord | None = None
    acted: bool = False
    restarted: tuple[type[Action], ...] = ()
    """the steps by which this pass started anew what had ended by itself"""

    def detail(self) -> Detail | None:
        """The typed status of what was last observed."""
        return self.reconciler.detail(self.record, self.observed)

    def drift(self) -> Drift | None:
        """The episode, if there is one."""
        return self.memory.episode.shown() if self.memory.episode else None


@frozen()
class Times:
    """Time and chance, injected: the clock, the wire's now, a number from 0 to 1, and the boot."""

    clock: Clock
    wire_now: Callable[[], str]
    jitter: Callable[[], float]
    boot: str = ""

    def moment(self) -> Moment:
        """This moment, for a change."""
        clock = self.clock
        return Moment(self.boot, int(clock.monotonic() * 1e6), int(clock.now() * 1e6))
