"""A Store in memory: what the engine's ledger is to one kind, with helpers that say what is wanted
and owned.

It keeps no bytes and crashes never; facts are copied through JSON, as the real ledger does, so that
a kind that records something else than JSON fails here already.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harmony_agent.core.resources import Desired, Facts, OwnershipRecord, SecretState
from harmony_agent.core.status import Outcome
from scores.base import Score
from scores.status import Detail


class FakeStore:
    """Implements `core.reconciler.KindView` for one kind. `noted` lists every note: (name, facts),
    oldest first.
    """

    def __init__(self, kind: str, deployment: str = "web") -> None:
        self.kind = kind
        self.deployment = deployment
        self.noted: list[tuple[str, dict[str, Any]]] = []
        self.told: list[Outcome] = []
        self.others: set[str] = set()
        """claims of resources of other kinds"""
        self.fallbacks: list[Any] = []
        """specs that a deployment may go back to"""
        self._desired: dict[str, Desired[Any]] = {}
        self._records: dict[str, OwnershipRecord] = {}

    # What a reconciler sees.

    def desired(self, name: str) -> Desired[Any] | None:
        return self._desired.get(name)

    def record(self, name: str) -> OwnershipRecord | None:
        return self._records.get(name)

    def names(self) -> Collection[str]:
        return list(dict.fromkeys([*self._desired, *self._records]))

    def wanted(self) -> Mapping[str, Desired[Any]]:
        return dict(self._desired)

    def spared(self) -> Sequence[Any]:
        return list(self.fallbacks)

    def holders(self, claim: str) -> Collection[str]:
        return [name for name, record in self._records.items() if claim in record.claims]

    def claimed(self, claim: str) -> bool:
        return claim in self.others or bool(self.holders(claim))

    def tell(self, desired: Desired[Any], told: Callable[[Detail | None], Outcome]) -> None:
        if self._desired.get(desired.spec.name) is desired:
            self.told.append(told(None))

    async def share(self, name: str, facts: Mapping[str, Facts]) -> bool:
        for one, kept in facts.items():
            await self.note(one, kept)
        return name in facts

    async def note(self, name: str, facts: Facts) -> None:
        self._records[name] = replace(self._records[name], facts=_json(facts))
        self.noted.append((name, _json(facts)))

    # What a test (or the fake engine) does.

    def set_desired(
        self,
        spec: Score,
        *,
        generation: int | None = None,
        restart_token: str = "",
        reload_token: str = "",
        secrets: tuple[SecretState, ...] = (),
    ) -> Desired[Any]:
        """Want `spec`. The generation goes up by one when the spec is another, unless it is
        given.
        """
        old = self._desired.get(spec.name)
        digest = spec.spec_digest()
        if generation is None:
            before = 0 if old is None else old.generation
            generation = before if old is not None and old.digest == digest else before + 1
        desired: Desired[Any] = Desired(
            spec=spec,
            digest=digest,
            generation=generation,
            deployment=self.deployment,
            restart_token=restart_token,
            reload_token=reload_token,
            secrets=secrets,
        )
        self._desired[spec.name] = desired
        return desired

    def unset(self, name: str) -> None:
        """Want `name` no more; what the ledger holds of it stays until `forget`."""
        self._desired.pop(name, None)

    def claim(
        self, name: str, facts: Facts | None = None, claims: Iterable[str] | None = None
    ) -> OwnershipRecord:
        """Own `name` by the spec that is wanted of it, as the engine does before it applies
        anything.

        Without `facts` or `claims`, those of an older record stay. `applied` stays as it was.
        """
        desired = self._desired[name]
        old = self._records.get(name)
        record = OwnershipRecord(
            kind=self.kind,
            name=name,
            deployment=self.deployment,
            spec_digest=desired.digest,
            generation=desired.generation,
            on_remove=desired.spec.on_remove,
            claims=frozenset(claims)
            if claims is not None
            else old.claims
            if old is not None
            else frozenset(),
            applied=old.applied if old is not None else "",
            facts=_json(facts) if facts is not None else old.facts if old is not None else {},
        )
        self._records[name] = record
        return record

    def put(self, record: OwnershipRecord) -> None:
        """Hold exactly this record."""
        self._records[record.name] = replace(record, facts=_json(record.facts))

    def settled(self, name: str, claims: Iterable[str]) -> None:
        """`name` converged on what is wanted: it is applied, and older claims are let go."""
        record = self._records[name]
        self._records[name] = replace(
            record, applied=self._desired[name].version, claims=frozenset(claims)
        )

    def forget(self, name: str) -> None:
        """The record goes, as it does after removal and for on_remove: orphan."""
        self._records.pop(name, None)


def _json(facts: Facts) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(facts, allow_nan=False))
    return copied
