"""View of the engine's state for the reconciler of one kind. It may write one thing there: facts.

Caches only the names, until the state changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from harmony_agent.core.resources import Desired, Facts, Key, OwnershipRecord
from harmony_agent.core.status import Outcome, resource_status
from harmony_agent.engine.state.device_state import DeviceState
from scores.base import Score
from scores.status import Detail


class DeviceStateView:
    """`core.reconciler.KindView` for one kind."""

    def __init__(self, state: DeviceState, kind: str) -> None:
        self._state = state
        self._kind = kind
        self._names: tuple[object, Collection[str]] = (None, ())
        self._wanted: tuple[int, Mapping[str, Desired[Score]]] = (-1, {})

    def desired(self, name: str) -> Desired[Score] | None:
        """Desired spec of `name`."""
        return self._state.desired.get(Key(self._kind, name))

    def record(self, name: str) -> OwnershipRecord | None:
        """Record of `name` in the ledger."""
        return self._state.records.get(Key(self._kind, name))

    def names(self) -> Collection[str]:
        """Every name of the kind that is wanted or owned."""
        if self._names[0] != self._state.revision:
            keys = self._state.desired.keys() | self._state.records.keys()
            self._names = (
                self._state.revision,
                tuple(key.name for key in keys if key.kind == self._kind),
            )
        return self._names[1]

    def wanted(self) -> Mapping[str, Desired[Score]]:
        """Every name of the kind that is wanted, with what is wanted of it."""
        if self._wanted[0] != self._state.enforced:
            found = {
                key.name: desired
                for key, desired in self._state.desired.items()
                if key.kind == self._kind
            }
            self._wanted = (self._state.enforced, found)
        return self._wanted[1]

    def spared(self) -> Sequence[Score]:
        """The specs of the kind that a deployment may go back to."""
        fallbacks, enforced = self._state.fallbacks, self._state.stored()
        return [score for _, score in fallbacks.spared(enforced) if score.kind == self._kind]

    def holders(self, claim: str) -> Collection[str]:
        """The names whose records have `claim`."""
        return [key.name for key in self._state.records.holders.of(claim) if key.kind == self._kind]

    def claimed(self, claim: str) -> bool:
        """Tell if any resource's record has `claim`."""
        return bool(self._state.records.holders.of(claim))

    def tell(self, desired: Desired[Score], told: Callable[[Detail | None], Outcome]) -> None:
        """Show how far a step over what is `desired` is."""
        key = Key(self._kind, desired.spec.name)
        if self._state.desired.get(key) is desired:
            old, now = self._state.statuses.get(key), self._state.now()
            outcome = told(old.status if old is not None else None)
            status = resource_status(old, outcome, desired.generation, desired.digest, now)
            self._state.set_status(key, desired.deployment, status)

    async def share(self, name: str, facts: Mapping[str, Facts]) -> bool:
        """Replace the facts of several names in one commit; False where another's pass is under
        way.
        """
        records = {
            one: replace(self._state.records[Key(self._kind, one)], facts=dict(facts[one]))
            for one in facts
        }
        own = records.pop(name)
        return await self._state.records.write_together(own, records.values())

    async def note(self, name: str, facts: Facts) -> None:
        """Replace the facts of `name`, durably."""
        record = self._state.records[Key(self._kind, name)]
        if record.facts != facts:
            await self._state.records.write(replace(record, facts=dict(facts)))
