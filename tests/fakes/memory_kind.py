"""A whole kind on a dict: Files that exist in memory. For tests of the engine, where the device
itself isn't the point.

It is a real Reconciler with the usual faults on order: a call can be made to fail, to hang, or to
be seen by a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

import anyio

from harmony_agent.core.actions import Act, Action, Converged, Plan
from harmony_agent.core.frozen import frozen
from harmony_agent.core.reconciler import KindView, LogLine
from harmony_agent.core.resources import Desired, Facts, OwnershipRecord
from scores.canonical import digest
from scores.file import File
from scores.manifest import FieldError
from scores.status import FileDetail


@frozen(kw_only=True)
class Put(Action):
    path: str
    data: bytes = field(repr=False)


@frozen(kw_only=True)
class Drop(Action):
    path: str


class MemoryFiles:
    """Implements Reconciler for File. `disk` is path -> content; `writes` counts what was done to
    it.
    """

    kind = "File"
    spec_type = File

    def __init__(self, store: KindView) -> None:
        self.store = store
        self.disk: dict[str, bytes] = {}
        self.writes: list[str] = []
        self.before: Callable[[str, str], None] = lambda _call, _name: None
        self.hung: set[str] = set()
        self.remembered: dict[str, bytes] = {}
        """name -> what the last look is said to have shown"""
        self.gates: dict[str, anyio.Event] = {}
        """name -> what each `apply` on it waits for: a slow resource"""

    def admit(self, spec: File) -> Iterable[FieldError]:
        return [] if spec.path.startswith("/srv/") else [FieldError("path", "PathOutsideRoots")]

    def claims(self, spec: File) -> frozenset[str]:
        return frozenset({f"path:{spec.path}"})

    def _path(self, name: str) -> str | None:
        desired, record = self.store.desired(name), self.store.record(name)
        if desired is not None:
            return str(desired.spec.path)
        return record.facts.get("path") if record is not None else None

    async def relist(self) -> Mapping[str, bytes]:
        self.before("relist", "")
        paths = {name: self._path(name) for name in self.store.names()}
        return {name: self.disk[path] for name, path in paths.items() if path in self.disk}

    async def observe(self, name: str) -> bytes | None:
        self.before("observe", name)
        if name in self.hung:
            await anyio.sleep_forever()
        path = self._path(name)
        return self.disk.get(path) if path is not None else None

    def cached(self, name: str) -> bytes | None:
        return self.remembered.get(name)

    def plan(
        self,
        name: str,
        desired: Desired[File] | None,
        record: OwnershipRecord | None,
        observed: bytes | None,
    ) -> Plan[Put | Drop]:
        if desired is None:
            if observed is None:
                return Converged()
            return Act(
                (Drop(name=name, reason="not wanted", path=record.facts["path"] if record else ""),)
            )
        wanted = desired.spec.data() or b""
        if observed == wanted:
            return Converged()
        put = Put(
            name=name,
            reason="content differs",
            path=desired.spec.path,
            data=wanted,
            is_disruptive=observed is not None,
        )
        return Act((put,), ("content",))

    async def apply(self, action: Put | Drop) -> None:
        self.before("apply", action.name)
        if action.name in self.gates:
            await self.gates[action.name].wait()
        self.writes.append(action.path)
        if isinstance(action, Put):
            self.disk[action.path] = action.data
        else:
            self.disk.pop(action.path, None)

    def facts(
        self, desired: Desired[File], record: OwnershipRecord | None, observed: bytes | None
    ) -> Facts:
        return {"path": desired.spec.path}

    def detail(self, record: OwnershipRecord | None, observed: bytes | None) -> FileDetail:
        if observed is None:
            return FileDetail(state="Absent")
        return FileDetail(state="PresentAt", digest=digest(observed))

    async def logs(self, name: str, lines: int, seconds: float | None = None) -> list[LogLine]:
        return [LogLine("", f"line {number}") for number in range(lines)]
