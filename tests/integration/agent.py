"""An agent in this process on a real nats-server, with the kind File in memory; and the control plane's hand."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType

from harmony_agent.adapters.clock import SystemClock
from harmony_agent.adapters.ledger import SqliteLedger
from harmony_agent.adapters.nats_desired import NatsControl
from harmony_agent.adapters.probing import LoopbackProber
from harmony_agent.engine.converge import Times
from harmony_agent.engine.engine import Engine, Intervals
from scores.keys import ACTUAL, BUCKETS, DESIRED, HISTORY
from scores.names import format_time
from scores.status import Capabilities, DeviceInfo, OsInfo
from tests.fakes.memory_kind import MemoryFiles
from tests.natsserver import NatsServer

DEVICE = "pi-01"
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"
OTHER = "7b0e0000-0000-4000-8000-000000000002"


class Agent:
    """The engine with its loops; `run` it. Stopping and running again is a restart with the same state directory."""

    def __init__(
        self, server: NatsServer, state: Path, disk: dict[str, bytes] | None = None, poll: float = 0.5
    ) -> None:
        self.server, self.state, self.poll = server, state, poll
        self.disk: dict[str, bytes] = {} if disk is None else disk
        self.files: MemoryFiles
        self.engine: Engine

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Agent]:
        clock = SystemClock()
        times = Times(clock, lambda: format_time(datetime.fromtimestamp(clock.now(), UTC)), random.random)
        ledger = SqliteLedger(self.state)
        control = NatsControl(DEVICE, str(self.state), [self.server.url], poll=self.poll)
        self.engine = Engine(
            device=DEVICE,
            ledger=ledger,
            control=control,
            prober=LoopbackProber(),
            times=times,
            intervals=Intervals(heartbeat=0.5, relist=0.5),
            describe=_describe,
            refresh=control.refresh,
            agent_version="1",
        )
        self.files = MemoryFiles(self.engine.book.store("File"))
        self.files.disk = self.disk
        self.engine.bind({"File": self.files})
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(control.run)
                tasks.start_soon(self.engine.run, lambda: None)
                yield self
                tasks.cancel_scope.cancel()
        finally:
            ledger.close()


async def _describe() -> DeviceInfo:
    return DeviceInfo(
        device=DEVICE,
        labels={"site": "home"},
        agent_version="1",
        boot_id="b",
        os=OsInfo(id="debian", version_id="12", arch="x86_64", kernel="6"),
        kinds=["File"],
        capabilities=Capabilities(),
    )


class Plane:
    """The control plane's side: puts manifests as bytes, reads statuses."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.js = client.jetstream(timeout=5)

    async def make_buckets(self, *names: str) -> None:
        for bucket in names or BUCKETS:
            await self.js.create_key_value(
                KeyValueConfig(bucket=bucket, history=HISTORY.get(bucket, 1), storage=StorageType.FILE)
            )

    async def put(self, value: Any, deployment: str = "web", device: str = DEVICE) -> int:
        data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        ack = await self.js.publish(f"$KV.{DESIRED}.{device}.{deployment}", data)
        return ack.seq

    async def status(self, deployment: str = "web") -> dict[str, Any] | None:
        from nats.js.errors import NotFoundError

        try:
            entry = await self.js.get_last_msg(f"KV_{ACTUAL}", f"$KV.{ACTUAL}.{DEVICE}.{deployment}")
        except NotFoundError:
            return None
        return json.loads(entry.data or b"{}")

    async def until(
        self, condition: Callable[[dict[str, Any]], bool], deployment: str = "web", seconds: float = 10.0
    ) -> dict[str, Any]:
        """The first status that fulfils the condition; the last one in the error otherwise."""
        status: dict[str, Any] | None = None
        with anyio.move_on_after(seconds):
            while True:
                status = await self.status(deployment)
                if status is not None and condition(status):
                    return status
                await anyio.sleep(0.01)
        raise AssertionError(f"not so within {seconds} s: {status}")


def manifest(generation: int, *contents: str, lineage: str = LINEAGE, deployment: str = "web", **more: Any) -> Any:
    """A manifest of one File per content, named f0, f1, …"""
    scores = [
        {"kind": "File", "name": f"f{number}", "path": f"/srv/{deployment}/f{number}", "content": content}
        for number, content in enumerate(contents)
    ]
    fields = {"api": "harmony/v1", "device": DEVICE, "deployment": deployment, "lineage": lineage}
    return {**fields, "generation": generation, "scores": scores, **more}


def converged(generation: int) -> Callable[[dict[str, Any]], bool]:
    return lambda status: status["phase"] == "Converged" and status["generation"] == generation


def said(phase: str, reason: str) -> Callable[[dict[str, Any]], bool]:
    return lambda status: (status["phase"], status["reason"]) == (phase, reason)
