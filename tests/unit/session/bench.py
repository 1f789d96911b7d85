"""What the tests of the kind Session share: a kind over fakes, and passes over it as the engine makes
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harmony_agent.core.actions import Converged, Plan, Wait
from harmony_agent.kinds.session import SessionReconciler
from scores.session import Session
from tests.fakes.clock import FakeClock
from tests.fakes.containers import FakeEnvFiles
from tests.fakes.drive import Pass, run
from tests.fakes.sessions import FakeSessions
from tests.fakes.store import FakeStore

INSTALLATION = "this-installation"


class Bench:
    """A device with a fake server of sessions, and an agent that can be restarted, or rebooted with
    its device.
    """

    def __init__(self) -> None:
        self.sessions = FakeSessions()
        self.env_files = FakeEnvFiles()
        self.store = FakeStore("Session")
        self.boot = 1
        self.tokens = 0
        self.restart_agent()

    def restart_agent(self) -> None:
        """What was only in the agent's memory is gone."""
        self.kind = SessionReconciler(
            self.sessions,
            self.env_files,
            self.store,
            FakeClock(),
            installation=INSTALLATION,
            boot_id=f"boot-{self.boot}",
            new_token=self._new_token,
            env_roots=["/srv"],
            closed_files=["/srv/closed"],
        )

    def _new_token(self) -> str:
        self.tokens += 1
        return f"token-{self.tokens}"

    def reboot(self) -> None:
        """The device goes down and comes up again: no session outlives that."""
        self.sessions.server_dies()
        self.boot += 1
        self.restart_agent()

    def want(self, spec: Session, *, restart_token: str = "") -> None:
        self.store.set_desired(spec, restart_token=restart_token)

    async def once(
        self, name: str = "worker", before: Callable[[Any], None] = lambda _action: None
    ) -> Pass:
        return await run(self.kind, self.store, name, before)

    async def settle(self, name: str = "worker") -> Plan[Any]:
        """Passes until nothing is to be done."""
        for _ in range(5):
            result = await self.once(name)
            if isinstance(result.plan, Converged | Wait):
                return result.plan
        raise AssertionError(f"{name} does not settle: {result}")

    async def made(self, spec: Session, *, restart_token: str = "") -> None:
        """Want it, settle it, and forget what was called until then."""
        self.want(spec, restart_token=restart_token)
        plan = await self.settle(spec.name)
        assert isinstance(plan, Converged), plan
        self.sessions.calls.clear()

    def facts(self, name: str = "worker") -> dict[str, Any]:
        record = self.store.record(name)
        return dict(record.facts) if record else {}

    def done(self) -> list[str]:
        """The changes that were asked for, in order."""
        return [call[0] for call in self.sessions.calls]

    async def detail(self, name: str = "worker") -> Any:
        return self.kind.detail(self.store.record(name), await self.kind.observe(name))


def worker(**fields: Any) -> Session:
    return Session.model_validate({"name": "worker", "command": ["/usr/bin/top"], **fields})
