"""A kind as the engine drives it: the methods of its reconciler, and a default for each that it may
leave out.

Bound once, at construction, so that a call costs no look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import anyio

from harmony_agent.core.errors import Terminal
from harmony_agent.core.reconciler import (
    Batches,
    Closes,
    EndsPasses,
    Logs,
    Mark,
    Marks,
    Reconciler,
    Releases,
    Remembers,
    Runs,
    RunsCommands,
    Takes,
    Watches,
)
from harmony_agent.core.resources import Desired, Facts

AnyReconciler = Reconciler[Any, Any, Any]


class KindInstance:
    """One kind on this device; see `core.reconciler` for what each method means."""

    def __init__(self, reconciler: AnyReconciler) -> None:
        self.kind, self.spec_type = reconciler.kind, reconciler.spec_type
        self.admit, self.claims = reconciler.admit, reconciler.claims
        self.relist, self.observe = reconciler.relist, reconciler.observe
        self.plan, self.apply = reconciler.plan, reconciler.apply
        self.facts, self.detail = reconciler.facts, reconciler.detail
        self.watch = reconciler.watch if isinstance(reconciler, Watches) else _no_events
        self.cached = reconciler.cached if isinstance(reconciler, Remembers) else _none
        runs = reconciler if isinstance(reconciler, Runs) else None
        self.instance = runs.instance if runs is not None else _no_process
        self.restart = runs.restart if runs is not None else _cannot("restart", self.kind)
        commands = reconciler if isinstance(reconciler, RunsCommands) else None
        refusal = _cannot("run a command in", self.kind)
        self.exec_probe = commands.exec_probe if commands is not None else refusal
        self.logs = reconciler.logs if isinstance(reconciler, Logs) else _no_logs
        self.batch_begin = reconciler.batch_begin if isinstance(reconciler, Batches) else _nothing
        self.batch_end = reconciler.batch_end if isinstance(reconciler, EndsPasses) else _nothing
        self.marked = reconciler.marked if isinstance(reconciler, Marks) else _no_marks
        self.taken = reconciler.taken if isinstance(reconciler, Takes) else _takes_nothing
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


def _cannot(what: str, kind: str) -> Callable[..., Any]:
    async def refuse(name: str, *arguments: object) -> int:
        del arguments
        raise Terminal("NotRestartable", f"cannot {what} {kind}/{name}: it has no process")

    return refuse


async def _no_logs(name: str, lines: int) -> list[str]:
    del name, lines
    return []


async def _no_marks() -> Sequence[Mark]:
    return ()


def _takes_nothing(name: str, desired: Desired[Any], observed: object) -> Mapping[str, Facts]:
    del name, desired, observed
    return {}


def _nothing(names: Collection[str]) -> None:
    del names


async def _nothing_later(*name: str) -> None:
    del name
