"""The records that a claim writes: the new owner's, and those of resources that give something up
to it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harmony_agent.core.decide import NAMED, DecisionInput
from harmony_agent.core.resources import Facts, Key, OwnershipRecord
from harmony_agent.core.steps import Hold


def claimed(case: DecisionInput, facts: Facts) -> OwnershipRecord:
    """Make the record for a `Claim`."""
    desired, old = case.desired, case.record
    if desired is None:
        raise ValueError(f"cannot claim {case.key}: it is not wanted")
    return OwnershipRecord(
        kind=case.key.kind,
        name=case.key.name,
        deployment=desired.deployment,
        spec_digest=desired.digest,
        generation=desired.generation,
        on_remove=desired.spec.on_remove,
        claims=case.claims | (old.claims if old else frozenset()),
        applied=old.applied if old else "",
        facts=dict(facts),
        needs=desired.needs,
        changed=old.changed if old else "",
        changing=old.changing if old else False,
    )


def given_up(case: DecisionInput, facts: Mapping[str, Facts]) -> list[OwnershipRecord]:
    """Make the records of `DecisionInput.taken` as they are once `case` has claimed; `facts` by
    name.
    """
    return [
        replace(
            record,
            claims=record.claims - case.claims,
            facts=dict(facts[record.name]),
            # What was applied isn't there any more. Where the spec moved away and was reached,
            # nothing changes.
            applied=record.applied if _reached(case, record) else "",
        )
        for record in case.taken
    ]


def _reached(case: DecisionInput, record: OwnershipRecord) -> bool:
    return record.reached == record.spec_digest == case.others.digests.get(record.key)


def taking(busy: Sequence[Key]) -> Hold:
    """A pass over a resource that gives something up is under way."""
    return Hold("Pending", "WaitsFor", f"waits for {', '.join(map(str, busy[:NAMED]))}", 0.1)
