"""A device in memory with one File reconciler on it, as the tests of the kind need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harmony_agent.core.actions import Act, Converged, Wait
from harmony_agent.kinds.file import FileReconciler
from scores.file import File
from tests.fakes import drive
from tests.fakes.files import FakeFiles, FakeObjects
from tests.fakes.store import FakeStore


class World:
    """`want` and `unwant` are what manifests do; `settle` is the engine's pass."""

    def __init__(self, **settings: Any) -> None:
        self.files = FakeFiles(settings.get("roots", ("/srv",)))
        self.objects = FakeObjects()
        self.store = FakeStore("File")
        self.kind = FileReconciler(
            self.files,
            self.store,
            self.objects,
            roots=settings.get("roots", ("/srv",)),
            forbidden=settings.get("forbidden", ("/srv/agent",)),
            allow_setuid=settings.get("allow_setuid", False),
        )

    def restart(self) -> None:
        """Another process: what it remembers is gone, the ledger and the device stay."""
        self.kind = FileReconciler(
            self.files, self.store, self.objects, roots=("/srv",), forbidden=("/srv/agent",)
        )

    def want(self, name: str = "a", **fields: Any) -> File:
        spec = File(name=name, **{"path": f"/srv/{name}", **fields})
        self.store.set_desired(spec)
        return spec

    async def settle(
        self, name: str = "a", before: Callable[[Any], None] = lambda _action: None
    ) -> drive.Pass:
        return await drive.run(self.kind, self.store, name, before)

    async def converge(self, name: str = "a", **fields: Any) -> drive.Pass:
        """Want it, settle, and check that it is as wanted and that a second pass does nothing."""
        self.want(name, **fields)
        result = await self.settle(name)
        assert result.plan == Converged(), result
        await self.idle(name)
        return result

    async def remove(self, name: str = "a") -> drive.Pass:
        """Want it no more, settle, and check that the record is gone."""
        self.store.unset(name)
        result = await self.settle(name)
        assert result.plan == Converged(), result
        assert self.store.record(name) is None
        return result

    async def idle(self, name: str = "a") -> None:
        """A further pass changes nothing: on the device, in the ledger."""
        changes, noted = len(self.files.changes), len(self.store.noted)
        assert (await self.settle(name)).plan == Converged()
        desired = self.store.desired(name)
        assert (
            self.kind.plan(
                name, desired, self.store.record(name), (await self.kind.relist()).get(name)
            )
            == Converged()
        )
        assert (len(self.files.changes), len(self.store.noted)) == (changes, noted)

    async def blocked(self, name: str = "a") -> str:
        """The reason of the Wait that a pass ends in, having changed nothing but what is the
        ledger's.
        """
        before = dict(self.files.things)
        result = await self.settle(name)
        assert isinstance(result.plan, Wait), result
        assert self.files.things == before
        return result.plan.reason

    def content(self, path: str) -> bytes:
        return self.files.things[path].content


def reasons(plan: object) -> list[str]:
    """The reasons of a plan's actions."""
    assert isinstance(plan, Act)
    return [action.reason for action in plan.actions]
