"""A kind on units in memory, and short ways to spell what the tests look at."""

from __future__ import annotations

from typing import Any

from harmony_agent.core.actions import Converged, Wait
from harmony_agent.core.errors import ResourceError
from harmony_agent.core.resources import OwnershipRecord
from harmony_agent.kinds.systemd_unit import UnitReconciler
from scores.systemd_unit import SystemdUnit
from tests.fakes import drive
from tests.fakes.store import FakeStore
from tests.fakes.units import FakeUnits

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=default.target\n"
ONCE = "[Service]\nType=oneshot\nExecStart=/bin/true\n"
NAME = "web.service"


class Bench:
    """One device in memory. `units` and `store` outlive a killed agent; `kind` doesn't."""

    def __init__(self) -> None:
        self.units = FakeUnits()
        self.store = FakeStore("SystemdUnit")
        self.kind = UnitReconciler(self.units, self.store)

    def restart_agent(self) -> None:
        self.units.crash()
        self.kind = UnitReconciler(self.units, self.store)

    async def once(self, name: str = NAME, before: Any = lambda _action: None) -> drive.Pass:
        return await drive.run(self.kind, self.store, name, before)

    async def want(self, spec: SystemdUnit | None, **tokens: str) -> drive.Pass:
        """Passes over `spec` until they lead nowhere else."""
        name = NAME if spec is None else spec.name
        if spec is None:
            self.store.unset(name)
        else:
            self.store.set_desired(spec, **tokens)
        return await self.settle(name)

    async def settle(self, name: str = NAME) -> drive.Pass:
        done = await self.once(name)
        for _ in range(8):
            if isinstance(done.plan, Converged | Wait):
                return done
            done = await self.once(name)
        raise AssertionError(f"doesn't settle: {done.plan}")

    async def failing(self, spec: SystemdUnit) -> ResourceError:
        self.store.set_desired(spec)
        try:
            done = await self.once(spec.name)
        except ResourceError as error:
            return error
        raise AssertionError(f"went well: {done}")

    def record(self, name: str = NAME) -> OwnershipRecord:
        record = self.store.record(name)
        assert record is not None
        return record

    def said(self, done: drive.Pass) -> tuple[str, str]:
        """(phase, reason) of a Wait, (phase, "") of Converged."""
        assert isinstance(done.plan, Converged | Wait)
        return done.plan.phase, done.plan.reason if isinstance(done.plan, Wait) else ""


def web(**fields: Any) -> SystemdUnit:
    return SystemdUnit.model_validate({"name": NAME, "content": SLEEP, **fields})


def system(**fields: Any) -> SystemdUnit:
    """A unit that the system already has."""
    return SystemdUnit.model_validate({"name": "sys.service", **fields})
