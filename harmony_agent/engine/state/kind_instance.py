"""A kind as the engine drives it: the methods of its reconciler, and a default for each that it may
leave out.

Bound once, at construction, so that a call costs no look-up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import anyio

from harmony_agent.core.actions import Action, Plan
from harmony_agent.core.errors import Terminal
from harmony_agent.core.reconciler import (
    Batches,
    Closes,
    EndsPasses,
    LogLine,
    Logs,
    Mark,
    Marks,
    Reconciler,
    Releases,
    Remembers,
    Runs,
    RunsCommands,
    Takes,
    Tidies,
    Watches,
)
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from scores.base import Score
from scores.manifest import FieldError
from scores.status import Detail

AnyReconciler = Reconciler[Any, Any, Any]
"""A reconciler of whatever kind. Its types end here: to the engine an observation is an object
that it hands back to the kind which made it.
"""
Wanted = Desired[Score]
Owned = OwnershipRecord | None


class KindInstance:
    """One kind on this device; see `core.reconciler` for what each method means."""

    def __init__(self, reconciler: AnyReconciler) -> None:
        self.kind: str = reconciler.kind
        self.spec_type: type[Score] = reconciler.spec_type
        self.admit: Callable[[Score], Iterable[FieldError]] = reconciler.admit
        self.claims: Callable[[Score], frozenset[str]] = reconciler.claims
        self.relist: Callable[[], Awaitable[Mapping[str, object]]] = reconciler.relist
        self.observe: Callable[[str], Awaitable[object | None]] = reconciler.observe
        self.plan: Callable[[str, Wanted | None, Owned, object | None], Plan[Action]]
        self.plan = reconciler.plan
        self.apply: Callable[[Action], Awaitable[None]] = reconciler.apply
        self.facts: Callable[[Wanted, Owned, object | None], Facts] = reconciler.facts
        self.detail: Callable[[Owned, object | None], Detail | None] = reconciler.detail
        self._optional(reconciler)

    def _optional(self, reconciler: AnyReconciler) -> None:
        """Bind what the kind has of the optional protocols."""
        self.watch = reconciler.watch if isinstance(reconciler, Watches) else _no_events
        self.cached: Callable[[str], object | None]
        self.cached = reconciler.cached if isinstance(reconciler, Remembers) else _none
        runs = reconciler if isinstance(reconciler, Runs) else None
        self.instance: Callable[[object | None], str]
        self.instance = runs.instance if runs is not None else _no_process
        self.restart = runs.restart if runs is not None else _cannot_restart(self.kind)
        self.exec_probe = (
            reconciler.exec_probe
            if isinstance(reconciler, RunsCommands)
            else _cannot_run(self.kind)
        )
        self.logs = reconciler.logs if isinstance(reconciler, Logs) else _no_logs
        self.batch_begin = reconciler.batch_begin if isinstance(reconciler, Batches) else _nothing
        self.batch_end = reconciler.batch_end if isinstance(reconciler, EndsPasses) else _nothing
        self.marked = reconciler.marked if isinstance(reconciler, Marks) else _no_marks
        self.taken: Callable[[str, Wanted, object | None], Mapping[str, Facts]]
        self.taken = reconciler.taken if isinstance(reconciler, Takes) else _takes_nothing
        self.tidy = reconciler.tidy if isinstance(reconciler, Tidies) else None
        self.release = reconciler.release if isinstance(reconciler, Releases) else _nothing_later
        self.close = reconciler.close if isinstance(reconciler, Closes) else _nothing_later


async def _no_events(changed: Callable[[str], None]) -> None:
    del changed
    await anyio.sleep_forever()


def _none(name: str) -> None:
    del name


def _no_process(observed: object) -> str:
    del observed
    return ""


def _cannot_restart(kind: str) -> Callable[[str], Awaitable[None]]:
    async def refuse(name: str) -> None:
        raise Terminal("NotRestartable", f"cannot restart {kind}/{name}: it has no process")

    return refuse


def _cannot_run(kind: str) -> Callable[[str, Sequence[str], float], Awaitable[int]]:
    async def refuse(name: str, argv: Sequence[str], timeout: float) -> int:
        del argv, timeout
        text = f"cannot run a command in {kind}/{name}: it has no process"
        raise Terminal("NotRestartable", text)

    return refuse


async def _no_logs(name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
    del name, lines, seconds
    return []


async def _no_marks() -> Sequence[Mark]:
    return ()


def _takes_nothing(name: str, desired: Wanted, observed: object | None) -> Mapping[str, Facts]:
    del name, desired, observed
    return {}


def _nothing(names: Collection[str]) -> None:
    del names


async def _nothing_later(*name: str) -> None:
    del name
