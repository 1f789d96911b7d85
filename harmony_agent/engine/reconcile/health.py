"""Health: runs the probes, and tells the worker if a process is ready and if it is alive.

A probe belongs to one instance. Another instance begins anew. Recorded readiness of the same
instance holds over a restart of the agent. This module restarts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.abc

from harmony_agent.core.errors import ResourceError, Transient
from harmony_agent.core.probes import ProbeCounter
from harmony_agent.core.resources import Key
from harmony_agent.engine.loops import defect
from harmony_agent.engine.reconcile.context import HealthVerdict
from harmony_agent.engine.state.kind_instance import KindInstance
from harmony_agent.topology import Clock
from harmony_agent.topology.probing import Prober
from scores.base import Score
from scores.container import Container
from scores.probes import Probe
from scores.session import Session
from scores.systemd_unit import SystemdUnit

READINESS: Final = "readiness"
LIVENESS: Final = "liveness"


@dataclass(slots=True)
class _Target:
    """The probes of one instance. `was_ready`: it was ready before, so a failure is Degraded."""

    instance: str
    tallies: dict[str, ProbeCounter]
    due: dict[str, float]
    was_ready: bool = False
    running: set[str] = field(default_factory=set)


class Health:
    """Run the probes, and keep their results."""

    def __init__(
        self,
        prober: Prober,
        kinds: Mapping[str, KindInstance],
        clock: Clock,
        changed: Callable[[Key], None],
    ) -> None:
        """`changed` is called with a key whose verdict flipped, or that has its first reason."""
        self._prober = prober
        self._kinds = kinds
        self._clock = clock
        self._changed = changed
        self._targets: dict[Key, _Target] = {}
        self._wake = anyio.Event()

    def track(self, key: Key, spec: Score, instance: str, *, ready_before: bool) -> HealthVerdict:
        """Probe `instance` from now on, if its spec has probes; returns the verdict until now."""
        probes = probes_of(spec)
        if not probes or not instance:
            self.forget(key)
            return HealthVerdict(ready=True)
        target = self._targets.get(key)
        if target is None or target.instance != instance or probes != _probes(target):
            now = self._clock.monotonic()
            tallies = {
                name: ProbeCounter(probe, good=name == LIVENESS or ready_before)
                for name, probe in probes.items()
            }
            due = {name: now + probe.initial_delay_seconds for name, probe in probes.items()}
            target = self._targets[key] = _Target(instance, tallies, due, was_ready=ready_before)
            self._wake.set()
        return _verdict(target)

    def forget(self, key: Key) -> None:
        """Stop the probes of what isn't wanted or doesn't run."""
        self._targets.pop(key, None)

    async def run(self) -> None:
        """Probe until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                self._wake = anyio.Event()
                self._start_due(tasks)
                due = [
                    moment
                    for target in self._targets.values()
                    for name, moment in target.due.items()
                    if name not in target.running
                ]
                wait = max(0.0, min(due) - self._clock.monotonic()) if due else None
                with anyio.move_on_after(wait):
                    await self._wake.wait()

    def _start_due(self, tasks: anyio.abc.TaskGroup) -> None:
        now = self._clock.monotonic()
        for key, target in self._targets.items():
            for name, moment in target.due.items():
                if moment <= now and name not in target.running:
                    target.running.add(name)
                    tasks.start_soon(self._probe, key, target, name)

    async def _probe(self, key: Key, target: _Target, name: str) -> None:
        tally = target.tallies[name]
        began, failure = self._clock.monotonic(), None
        try:
            failure = await self._ask(key, tally.probe)
        except Exception as error:  # the other probes go on
            defect(f"the {name} probe of {key}", error)
        finally:
            target.running.discard(name)
            target.due[name] = max(began + tally.probe.period_seconds, self._clock.monotonic())
            self._wake.set()
        if failure is None or self._targets.get(key) is not target:
            return  # it says nothing, or is of an instance that is gone
        first = not tally.good and not tally.why and failure
        if tally.count(failure) or first:
            target.was_ready = target.was_ready or (name == READINESS and tally.good)
            self._changed(key)

    async def _ask(self, key: Key, probe: Probe) -> str | None:
        """Return the failure, "" for success.

        None if it couldn't be asked: that tells nothing of the instance.
        """
        if probe.http is not None:
            return await self._prober.http(probe.http, probe.timeout_seconds)
        if probe.tcp is not None:
            return await self._prober.tcp(probe.tcp, probe.timeout_seconds)
        kind = self._kinds[key.kind]
        try:
            code = await kind.exec_probe(key.name, list(probe.exec or ()), probe.timeout_seconds)
        except ResourceError as error:
            return (
                None
                if isinstance(error, Transient) and error.phase in ("Unknown", "Blocked")
                else error.reason
            )
        return "" if code == 0 else f"exit code {code}"


def probes_of(spec: Score) -> dict[str, Probe]:
    """The probes that a spec has, by name."""
    if not isinstance(spec, SystemdUnit | Container | Session):
        return {}
    found = {READINESS: spec.readiness, LIVENESS: spec.liveness}
    return {name: probe for name, probe in found.items() if probe is not None}


def _probes(target: _Target) -> dict[str, Probe]:
    return {name: tally.probe for name, tally in target.tallies.items()}


def _verdict(target: _Target) -> HealthVerdict:
    readiness, liveness = target.tallies.get(READINESS), target.tallies.get(LIVENESS)
    alive = liveness is None or liveness.good
    ready = readiness is None or readiness.good
    why = (
        liveness.why
        if liveness is not None and not alive
        else readiness.why
        if readiness and not ready
        else ""
    )
    return HealthVerdict(ready=ready, alive=alive, was_ready=target.was_ready, why=why)
