"""An agent in this process on a real nats-server, with the kind File in memory; and the control
plane's hand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
import nats.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType

from harmony_agent.adapters.host import SystemClock
from harmony_agent.adapters.ledger.ledger import SqliteLedger
from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_agent.adapters.probing import LoopbackProber
from harmony_agent.core.signatures import Trust
from harmony_agent.engine.engine import Engine, Intervals
from harmony_agent.engine.reconcile.context import Times
from harmony_agent.engine.state.device_state import DeviceState
from harmony_agent.engine.state.kind_view import DeviceStateView
from scores.keys import ACTUAL, BUCKETS, DESIRED, HISTORY
from scores.names import format_time
from scores.status import Capabilities, DeviceInfo, OsInfo, TrustInfo
from tests.fakes.memory_kind import MemoryFiles
from tests.natsserver import NatsServer

DEVICE = "pi-01"
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"
OTHER = "7b0e0000-0000-4000-8000-000000000002"
SECRET = "hunter2"
"""Content that no status and no log may show."""


class Agent:
    """The engine with its loops; `run` it. Stopping and running again is a restart with the same
    state directory.

    `disk` is path -> content, and outlives the agent. `url` is where it connects, if not to the
    server itself; `machine` tells two devices of one id apart.
    """

    def __init__(
        self,
        server: NatsServer,
        state: Path,
        disk: dict[str, bytes] | None = None,
        *,
        poll: float = 0.5,
        device: str = DEVICE,
        url: str = "",
        urls: Sequence[str] = (),
        machine: str = "",
        heartbeat: float = 0.5,
        trust: Trust | None = None,
    ) -> None:
        self.state, self.poll, self.device, self.heartbeat = state, poll, device, heartbeat
        self.urls = list(urls) or [url or server.url]
        self.machine = machine or str(state)
        self.link: dict[str, str] = {}
        """credentials and tls_ca of its connection"""
        self.disk: dict[str, bytes] = {} if disk is None else disk
        self.trust = trust or Trust()
        self.allowed = ("File",)
        """the kinds of its configuration"""
        self.applied: list[str] = []
        """every path that was written or removed, over all runs"""
        self.prepare: Callable[[MemoryFiles], None] = lambda _files: None
        """what a test does to the kind before it runs"""
        self.files: MemoryFiles
        self.engine: Engine
        self.control: NatsControl

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Agent]:
        """The agent, alive; what it dies of is raised at the end. It has its own task: a fixture
        may hold it.
        """
        ready, end = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(self._run(ready, end))
        task.add_done_callback(lambda _task: ready.set())
        await ready.wait()
        try:
            yield self
        finally:
            end.set()
            await task

    async def _run(self, ready: asyncio.Event, end: asyncio.Event) -> None:
        clock = SystemClock()
        times = Times(
            clock, lambda: format_time(datetime.fromtimestamp(clock.now(), UTC)), random.random
        )
        ledger = SqliteLedger(self.state)
        book = DeviceState(ledger, times.wire_now)
        known = lambda: list(book.deployments)  # noqa: E731
        self.control = NatsControl(
            self.device, self.machine, self.urls, poll=self.poll, known=known, **self.link
        )
        self.files = MemoryFiles(DeviceStateView(book, "File"))
        self.files.disk, self.files.writes = self.disk, self.applied
        self.prepare(self.files)
        self.engine = Engine(
            device=self.device,
            state=book,
            kinds=dict.fromkeys(self.allowed, self.files),
            control=self.control,
            prober=LoopbackProber(),
            times=times,
            intervals=Intervals(heartbeat=self.heartbeat, relist=0.3),
            describe=self._describe,
            refresh=self.control.refresh,
            agent_version="1",
            trust=self.trust,
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.control.run)
                tasks.start_soon(self.engine.run, ready.set)
                await end.wait()
                tasks.cancel_scope.cancel()
        finally:
            ledger.close()

    async def _describe(self) -> DeviceInfo:
        return DeviceInfo(
            device=self.device,
            labels={"site": "home"},
            agent_version="1",
            boot_id=self.machine[-8:],
            os=OsInfo(id="debian", version_id="12", arch="x86_64", kernel="6"),
            kinds=["File"],
            capabilities=Capabilities(),
            trust=TrustInfo(require=self.trust.require, keys=sorted(self.trust.keys))
            if self.trust.keys
            else None,
        )

    async def repairs(self, path: str = "/srv/web/f0", seconds: float = 40.0) -> None:
        """Drift is still found and repaired: what stands at `path` now is enforced."""
        wanted = self.disk[path]
        self.disk[path] = b"drifted"
        await eventually(lambda: self.disk.get(path) == wanted, f"{path} was not repaired", seconds)


async def eventually(condition: Callable[[], bool], what: str, seconds: float = 40.0) -> None:
    """Wait until the condition holds."""
    with anyio.move_on_after(seconds):
        while not condition():
            await anyio.sleep(0.01)
        return
    raise AssertionError(f"{what} within {seconds} s")


class Plane:
    """The control plane's side: puts manifests as bytes, reads what devices say."""

    def __init__(self, client: Client, device: str = DEVICE) -> None:
        self.client = client
        self.device = device
        self.js = client.jetstream(timeout=20)

    async def make_buckets(self, *names: str, replicas: int = 1) -> None:
        for bucket in names or BUCKETS:
            await self.js.create_key_value(
                KeyValueConfig(
                    bucket=bucket,
                    history=HISTORY.get(bucket, 1),
                    storage=StorageType.FILE,
                    replicas=replicas,
                )
            )

    async def delete_buckets(self, *names: str) -> None:
        for bucket in names:
            await self.js.delete_key_value(bucket)

    async def put(self, value: Any, deployment: str = "web", device: str = "") -> int:
        data = (
            value
            if isinstance(value, bytes)
            else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        )
        ack = await self.js.publish(f"$KV.{DESIRED}.{device or self.device}.{deployment}", data)
        return ack.seq

    async def mark(self, operation: str, deployment: str = "web") -> None:
        """Delete (DEL) or purge (PURGE) a key of desired-state, as any KV client does."""
        headers = {"KV-Operation": operation}
        if operation == "PURGE":
            headers["Nats-Rollup"] = "sub"
        await self.js.publish(f"$KV.{DESIRED}.{self.device}.{deployment}", b"", headers=headers)

    async def get(self, bucket: str, key: str) -> dict[str, Any] | None:
        from nats.js.errors import NotFoundError

        try:
            entry = await self.js.get_last_msg(f"KV_{bucket}", f"$KV.{bucket}.{key}")
        except NotFoundError:
            return None
        try:
            return json.loads(entry.data or b"{}")
        except ValueError:  # of somebody else than an agent
            return {}

    async def status(self, deployment: str = "web") -> dict[str, Any] | None:
        return await self.get(ACTUAL, f"{self.device}.{deployment}")

    async def writes(self, bucket: str) -> int:
        """How many messages were ever stored in the bucket."""
        return (await self.js.stream_info(f"KV_{bucket}")).state.last_seq

    async def consumers(self) -> list[str]:
        """The names of the consumers of desired-state."""
        return [info.name for info in await self.js.consumers_info(f"KV_{DESIRED}")]

    async def until(
        self,
        condition: Callable[[dict[str, Any]], bool],
        deployment: str = "web",
        seconds: float = 40.0,
    ) -> dict[str, Any]:
        """The first status that fulfils the condition; the last one in the error otherwise."""
        return await self.until_value(ACTUAL, f"{self.device}.{deployment}", condition, seconds)

    async def until_value(
        self,
        bucket: str,
        key: str,
        condition: Callable[[dict[str, Any]], bool],
        seconds: float = 40.0,
    ) -> dict[str, Any]:
        value: dict[str, Any] | None = None
        with anyio.move_on_after(seconds):
            while True:
                with contextlib.suppress(
                    nats.errors.Error, TimeoutError
                ):  # a server that is coming up
                    value = await self.get(bucket, key)
                if value is not None and condition(value):
                    return value
                await anyio.sleep(0.02)
        raise AssertionError(f"not so within {seconds} s: {value}")


@asynccontextmanager
async def live(
    server: NatsServer, state: Path, **options: Any
) -> AsyncIterator[tuple[Agent, Plane]]:
    """An agent and the control plane, with all buckets made."""
    async with server.client() as client:
        plane = Plane(client)
        await plane.make_buckets()
        agent = Agent(server, state, **options)
        async with agent.run():
            yield agent, plane


def enforces(generation: int, status: dict[str, Any]) -> None:
    """The status is about `generation` of the first lineage, and nothing of a newcomer leaked into
    it.
    """
    assert (status["lineage"], status["generation"]) == (LINEAGE, generation)
    assert SECRET not in json.dumps(status)
    assert {resource["phase"] for resource in status["resources"].values()} == {"Ready"}


def rejected(status: dict[str, Any]) -> tuple[int | None, str, list[tuple[str, str]]]:
    """What a status tells of a newcomer: its generation, the reason, and each field with its
    code.
    """
    rejection = status["rejected"]
    errors = [(error["field"], error["code"]) for error in rejection["errors"]]
    return rejection["generation"], rejection["reason"], errors


def manifest(
    generation: int, *contents: str, lineage: str = LINEAGE, deployment: str = "web", **more: Any
) -> Any:
    """A manifest of one File per content, named f0, f1, …"""
    scores = [
        {
            "kind": "File",
            "name": f"f{number}",
            "path": f"/srv/{deployment}/f{number}",
            "content": content,
        }
        for number, content in enumerate(contents)
    ]
    fields = {"api": "harmony/v1", "device": DEVICE, "deployment": deployment, "lineage": lineage}
    return {**fields, "generation": generation, "scores": scores, **more}


def converged(generation: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: status.get("phase") == "Converged" and status["generation"] == generation


def said(phase: str, reason: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: (status.get("phase"), status.get("reason")) == (phase, reason)
