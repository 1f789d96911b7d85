"""Three nats-servers, replicas of 3, the leader killed twenty times: no generation lost, none
applied twice.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import nats.errors
import nats.js.errors
import pytest
from nats.js.api import StreamInfo

from harmony_agent.topology.control_plane import Unreachable
from scores.keys import ACTUAL, DESIRED
from tests.fakes.memory_kind import MemoryFiles
from tests.integration.agent import DEVICE, Agent, Plane, converged, manifest
from tests.natscluster import NatsCluster

KILLS = 20
SUBJECT = f"$KV.{DESIRED}.{DEVICE}.web"
LOST = (nats.errors.Error, nats.js.errors.Error, TimeoutError, OSError)


class Writer:
    """A control plane as it has to be: by compare-and-set, and it looks again where an answer was
    lost.
    """

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self.acknowledged = 0
        self.lost: list[tuple[int, int]] = []
        """where another generation was accepted behind one that is not the last acknowledged: both
        numbers
        """

    async def publish(self, generation: int) -> None:
        """Until this generation stands there, acknowledged."""
        value = manifest(generation, f"{generation}", "same")
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        while True:
            try:
                sequence, found = await self.now()
                if found != generation:
                    headers = {"Nats-Expected-Last-Subject-Sequence": str(sequence)}
                    await self._plane.js.publish(SUBJECT, data, timeout=2, headers=headers)
                    if found < self.acknowledged:
                        self.lost.append((found, self.acknowledged))
            except LOST:
                await asyncio.sleep(0.1)
            else:
                self.acknowledged = generation
                return

    async def now(self) -> tuple[int, int]:
        """The sequence and the generation of what stands there."""
        try:
            entry = await self._plane.js.get_last_msg(f"KV_{DESIRED}", SUBJECT)
        except nats.js.errors.NotFoundError:
            return 0, 0
        return entry.seq or 0, json.loads(entry.data or b"{}")["generation"]


async def info(plane: Plane, bucket: str) -> StreamInfo | None:
    try:
        return await plane.js.stream_info(f"KV_{bucket}")
    except LOST:
        return None


async def healthy(plane: Plane, bucket: str, seconds: float = 60.0) -> str:
    """The bucket's leader, once both followers have all of it: one more may then go."""
    for _ in range(int(seconds / 0.1)):
        found = await info(plane, bucket)
        cluster = found.cluster if found is not None else None
        if (
            cluster is not None
            and cluster.leader
            and all(peer.current for peer in cluster.replicas or [])
        ):
            return cluster.leader
        await asyncio.sleep(0.1)
    raise AssertionError(f"{bucket} is not whole again")


async def never_back(plane: Plane, seen: list[int]) -> None:
    """The generation that actual-state shows, for as long as it runs."""
    while True:
        try:
            status = await plane.status()
        except LOST:
            status = None
        if status:
            seen.append(status["generation"])
        await asyncio.sleep(0.05)


def recording(applied: list[int]) -> Any:
    """Note the content of f0 with each write of it."""

    def prepare(files: MemoryFiles) -> None:
        def before(call: str, name: str) -> None:
            desired = files.store.desired(name)
            if (call, name) == ("apply", "f0") and desired is not None:
                applied.append(int(desired.spec.content))

        files.before = before

    return prepare


@pytest.mark.timeout(1200)
async def test_leader_killed_twenty_times(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    chance = random.Random(seed)
    applied: list[int] = []
    seen: list[int] = []
    with NatsCluster(tmp_path / "nats") as cluster:
        agent = Agent(cluster.servers["n0"], tmp_path / "state", urls=cluster.urls)
        agent.prepare = recording(applied)
        async with cluster.client() as client:
            await cluster.ready(client)
            plane = Plane(client)
            await plane.make_buckets(replicas=3)
            writer = Writer(plane)
            async with agent.run():
                watching = asyncio.create_task(never_back(plane, seen))
                publishing = asyncio.create_task(publish_all(writer, chance))
                for kill in range(KILLS):
                    leader = await healthy(plane, DESIRED if kill % 2 else ACTUAL)
                    await asyncio.sleep(chance.uniform(0.0, 0.3))
                    cluster.servers[leader].kill()
                    await asyncio.sleep(chance.uniform(0.0, 1.0))
                    cluster.servers[leader].start()
                publishing.cancel()
                await asyncio.wait([publishing])
                last = writer.acknowledged + 1
                await writer.publish(last)
                status = await plane.until(converged(last), seconds=60)
                watching.cancel()
                await asyncio.wait([watching])
    assert last > KILLS
    assert writer.lost == []
    assert agent.disk == {"/srv/web/f0": f"{last}".encode(), "/srv/web/f1": b"same"}
    assert agent.applied.count("/srv/web/f1") == 1
    assert applied == sorted(set(applied))  # none twice, none out of turn
    assert seen == sorted(seen)
    assert status["rejected"] is None
    assert "DuplicateAgent" not in {getattr(record, "reason", "") for record in caplog.records}


async def publish_all(writer: Writer, chance: random.Random) -> None:
    """One generation after another."""
    generation = 0
    while True:
        generation += 1
        await writer.publish(generation)
        await asyncio.sleep(chance.uniform(0.0, 0.3))


async def falls_silent(agent: Agent) -> None:
    for _ in range(150):
        try:
            # a write needs the other two; what is only asked for, a leader may answer alone for a
            # while
            await agent.control.put(ACTUAL, f"{DEVICE}.silence", b"{}", None)
        except Unreachable:
            return
        await asyncio.sleep(0.2)
    raise AssertionError("JetStream still answers, with two of three servers gone")


async def test_a_request_that_takes_long_costs_no_connection(tmp_path: Path) -> None:
    """While a cluster has no leader, JetStream is silent and the server is not: the connection
    stays.
    """
    with NatsCluster(tmp_path / "nats") as cluster:
        async with cluster.client() as client:
            await cluster.ready(client)
            await Plane(client).make_buckets(replicas=3)
        agent = Agent(cluster.servers["n0"], tmp_path / "state", url=cluster.servers["n0"].url)
        async with agent.run():
            while agent.engine.intake.lost is not None:
                await asyncio.sleep(0.05)
            attempts = agent.control.attempts
            cluster.servers["n1"].kill()
            cluster.servers["n2"].kill()
            await falls_silent(agent)
            await asyncio.sleep(5.0)  # the agent's own requests meet the same silence
            assert agent.control.connected()
            assert agent.control.attempts == attempts
            for name in ("n1", "n2"):
                cluster.servers[name].start()
            async with cluster.client() as client:
                await cluster.ready(client)
                plane = Plane(client)
                await Writer(plane).publish(1)
                await plane.until(converged(1), seconds=40)
