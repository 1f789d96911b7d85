"""Plans: what a kind wants to be done next. Converged, Act or Wait; pure types."""

from __future__ import annotations

from typing import Generic, TypeVar

from harmony_agent.core.frozen import frozen
from scores.status import ResourcePhase

A_co = TypeVar("A_co", bound="Action", covariant=True)


@frozen(kw_only=True)
class Action:
    """One step towards the desired state, idempotent. Kinds subclass it.

    `reason` is for people: what differs, as ``content differs`` or ``the unit is inactive``; never
    a value. `is_disruptive` is whether it changes or stops something that was there before: such an
    action is never taken on an object that the ledger doesn't show as ours, unless the Score says
    `adopt`. Mark content `field(repr=False)`.
    """

    name: str
    reason: str
    is_disruptive: bool = True


@frozen()
class Converged:
    """Nothing to do: the device is as wanted (with `desired` None: the resource is gone).

    `reason` and `message` tell what its author may want to know all the same.
    """

    phase: ResourcePhase = "Ready"
    reason: str = ""
    message: str = ""
    holds: frozenset[str] = frozenset()
    """claims besides its spec's, kept until another resource takes them over"""
    again: float | None = None
    """when to look again, in seconds since 1970; None waits for an event"""


@frozen()
class Act(Generic[A_co]):
    """Actions to take next, in this order.

    `fields` are the names of the Score's fields that differ.

    `is_restart`: this starts anew what had ended by itself, so the engine paces it (10 s doubling
    to 300 s). `drift` False: this is in the order of things (what ended as it should is recorded,
    what a reboot stopped is started), so it is done where drift is only reported, too, and counts
    as none. `ahead`: this clears the way for another resource, so it waits for nothing that its own
    spec needs. `for_others`: this only has a process read anew what another resource changed.
    """

    actions: tuple[A_co, ...]
    fields: tuple[str, ...] = ()
    is_restart: bool = False
    drift: bool = True
    ahead: bool = False
    for_others: bool = False


@frozen()
class Wait:
    """Nothing can be done now; look again after `seconds`, or when an event comes.

    `phase` Progressing: it is on its way. Degraded: it failed and is being retried. Blocked: an
    outside cause, named in `message`. Failed: it ended badly, and only another spec can help.
    `reason` is a code of ``docs/reasons/``.
    """

    reason: str
    message: str = ""
    phase: ResourcePhase = "Progressing"
    seconds: float = 1.0


Plan = Converged | Act[A_co] | Wait
