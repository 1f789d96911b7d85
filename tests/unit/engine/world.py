"""One device in memory, with time that passes only while everybody waits: the whole engine, without
a loop of its own.

A test is a coroutine that is run in it; what it waits for takes no real time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from harmony_agent.core.resources import Key, OwnershipRecord
from harmony_agent.engine.engine import Engine, Intervals
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from scores.canonical import canonical
from scores.keys import ACTUAL, DESIRED
from scores.names import format_time
from scores.status import Capabilities, DeviceInfo, OsInfo, ResourceStatus
from tests.fakes.ledger import FakeLedger
from tests.fakes.memory_kind import MemoryFiles
from tests.fakes.plane import FakePlane
from tests.fakes.virtual import VirtualClock, VirtualLoop

DEVICE = "pi-01"
BOOT = "1"
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"


def file(name: str, path: str = "", content: str = "1", **more: Any) -> dict[str, Any]:
    """A File of a manifest."""
    return {
        "kind": "File",
        "name": name,
        "path": path or f"/srv/{name}",
        "content": content,
        **more,
    }


class World:
    """The engine, its ledger, its control plane and its files. `kinds`: made with its memory; Files
    where not given.
    """

    def __init__(
        self, kinds: Callable[[DeviceState], dict[str, Any]] | None = None, prober: Any = None
    ) -> None:
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.ledger = FakeLedger()
        self.boot = BOOT
        self.disk: dict[str, bytes] = {}
        self._kinds, self._prober = kinds, prober
        self._task: asyncio.Task[None] | None = None

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        """Run a test, then stop the engine; what it leaves undone is cancelled."""
        try:
            self.loop.run_until_complete(test)
        finally:
            self.loop.run_until_complete(self.stop())
            self.loop.close()

    async def start(self) -> None:
        """The agent starts."""
        if not hasattr(self, "plane"):
            self.plane = FakePlane(DEVICE)
        wire_now = lambda: format_time(datetime.fromtimestamp(self.clock.now(), UTC))  # noqa: E731
        book = DeviceState(self.ledger, wire_now)
        self.files = MemoryFiles(DeviceStateView(book, "File"))
        self.files.disk = self.disk
        self.engine = Engine(
            device=DEVICE,
            state=book,
            kinds=self._kinds(book) if self._kinds is not None else {"File": self.files},
            control=self.plane,
            prober=self._prober,
            times=Times(self.clock, wire_now, lambda: 0.0, self.boot),
            intervals=Intervals(heartbeat=10, relist=10),
            describe=_describe,
            refresh=self.plane.refresh,
            agent_version="1",
        )
        ready = asyncio.Event()
        self._task = asyncio.create_task(self.engine.run(ready.set))
        await ready.wait()

    async def stop(self) -> None:
        """The agent ends, wherever it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
            self.plane.forget_agent()

    def publish(
        self, generation: int, *scores: dict[str, Any], deployment: str = "web", **more: Any
    ) -> bytes:
        """Write a manifest into desired-state."""
        value = {
            "api": "harmony/v1",
            "device": DEVICE,
            "deployment": deployment,
            "lineage": LINEAGE,
        }
        data = canonical({**value, "generation": generation, "scores": list(scores), **more})
        self.plane.set(DESIRED, f"{DEVICE}.{deployment}", data)
        return data

    def said(self, deployment: str = "web") -> dict[str, Any]:
        """What actual-state shows; nothing where somebody else's bytes are there."""
        entry = self.plane.entries[ACTUAL].get(f"{DEVICE}.{deployment}")
        try:
            shown = json.loads(entry.data) if entry is not None and entry.data else {}
        except (ValueError, RecursionError):
            return {}
        return shown if isinstance(shown, dict) else {}

    def status(self, key: str) -> ResourceStatus:
        """How a resource is."""
        return self.engine.state.statuses[Key.parse(key)]

    def owned(self, key: str) -> OwnershipRecord | None:
        """What the ledger's disk holds of a resource."""
        return self.ledger.owned.get(Key.parse(key))

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until it holds; fail after so many of the device's seconds."""
        end = self.loop.passed + seconds
        while not condition():
            assert self.loop.passed < end, f"not so after {seconds:g} s: {self.engine.statuses()}"
            await asyncio.sleep(0.01)

    async def told(self, phase: str, generation: int | None, deployment: str = "web") -> None:
        """Wait until actual-state shows this."""
        await self.until(lambda: (self._shown(deployment)) == (phase, generation))

    def _shown(self, deployment: str) -> tuple[Any, Any]:
        said = self.said(deployment)
        return said.get("phase"), said.get("generation")


async def _describe() -> DeviceInfo:
    os = OsInfo(id="debian", version_id="12", arch="x86_64", kernel="6")
    return DeviceInfo(
        device=DEVICE,
        labels={},
        agent_version="1",
        boot_id="b",
        os=os,
        kinds=["File"],
        capabilities=Capabilities(),
    )
