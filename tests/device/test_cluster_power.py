"""The power of NATS servers' disks goes under a live agent: with `sync_interval: always` nothing
acknowledged is lost.

Of a cluster of three, one server after another and then the whole house at once; and of a server by
itself, where no other has what it loses. Without that setting both lose generations that were
acknowledged seconds before.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from scores.keys import ACTUAL, DESIRED
from tests.device.disk import Disk
from tests.device.lab import Lab
from tests.integration.agent import Agent, Plane, converged
from tests.integration.test_cluster import Writer, healthy, never_back, publish_all, recording
from tests.natscluster import NatsCluster
from tests.natsserver import NatsServer
from tests.scale import scaled

CUTS = scaled(1, 20)
"""Of one server of the cluster and then of all three, each so often; it takes them ten seconds to
elect leaders. Of the one by itself three times as often."""
SYNC = not os.environ.get("HARMONY_NO_SYNC")
"""That this test can fail is seen by hand: without the setting it does."""


@dataclass
class House:
    """Servers, each with its store on a disk of its own."""

    servers: dict[str, NatsServer]
    disks: dict[str, Disk] = field(default_factory=dict)

    def furnish(self, lab: Lab, stack: ExitStack) -> None:
        """Before the servers are started."""
        for name, server in self.servers.items():
            self.disks[name] = stack.enter_context(lab.disk())
            server.folder.mkdir(parents=True, exist_ok=True)
            server.store.symlink_to(self.disks[name].folder)

    def cut(self, names: Sequence[str]) -> None:
        """Nothing is done any more, nothing reaches the disks, nobody ends in good order."""
        for name in names:
            self.servers[name].pause()
        for name in names:
            self.disks[name].fail()
        for name in names:
            self.servers[name].kill()
        for name in names:
            self.disks[name].come_back()

    async def lose_power(self, *names: str, down: float = 0.0) -> None:
        """Cut it, and start again what it was cut of."""
        await asyncio.to_thread(self.cut, names)
        await asyncio.sleep(down)
        for name in names:
            self.servers[name].start()


@dataclass
class Watched:
    """What happens while the power goes and comes."""

    agent: Agent
    writer: Writer
    plane: Plane
    chance: random.Random
    applied: list[int] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)

    async def ends_well(self) -> None:
        """One generation more is the last word everywhere; none was lost, and none was applied
        twice.
        """
        acknowledged = self.writer.acknowledged
        await self.writer.publish(acknowledged + 1)
        status = await self.plane.until(converged(acknowledged + 1), seconds=120)
        assert self.writer.lost == []
        assert self.agent.disk == {
            "/srv/web/f0": f"{acknowledged + 1}".encode(),
            "/srv/web/f1": b"same",
        }
        assert self.agent.applied.count("/srv/web/f1") == 1
        assert self.applied == sorted(set(self.applied))
        assert self.seen == sorted(self.seen)
        assert status["rejected"] is None
        assert acknowledged > CUTS


@asynccontextmanager
async def living(agent: Agent, plane: Plane, replicas: int) -> AsyncIterator[Watched]:
    """The agent runs, one generation after another is published, and what its status shows is
    watched.
    """
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")
    await plane.make_buckets(replicas=replicas)
    watched = Watched(agent, Writer(plane), plane, random.Random(seed))
    agent.prepare = recording(watched.applied)
    async with agent.run():
        tasks: list[asyncio.Task[Any]] = [
            asyncio.create_task(never_back(plane, watched.seen)),
            asyncio.create_task(publish_all(watched.writer, watched.chance)),
        ]
        try:
            yield watched
            tasks.pop().cancel()
            await watched.ends_well()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@pytest.mark.timeout(scaled(400, 7200))
async def test_of_a_cluster_one_by_one_and_all_at_once(lab: Lab, tmp_path: Path) -> None:
    cluster = NatsCluster(tmp_path, sync_always=SYNC)
    house = House(cluster.servers)
    with ExitStack() as stack:
        house.furnish(lab, stack)
        with cluster:
            async with cluster.client() as client:
                await cluster.ready(client)
                agent = Agent(cluster.servers["n0"], tmp_path / "state", urls=cluster.urls)
                async with living(agent, Plane(client), replicas=3) as watched:
                    for cut in range(2 * CUTS):
                        leader = await healthy(watched.plane, DESIRED if cut % 4 < 2 else ACTUAL)
                        await more(watched)
                        names = list(cluster.servers) if cut % 2 else [leader]
                        await house.lose_power(*names, down=watched.chance.uniform(0.0, 0.5))


@pytest.mark.timeout(scaled(300, 3600))
async def test_of_a_server_by_itself(lab: Lab, tmp_path: Path) -> None:
    server = NatsServer(tmp_path, sync_always=SYNC)
    house = House({"one": server})
    options = {
        "allow_reconnect": True,
        "max_reconnect_attempts": -1,
        "reconnect_time_wait": 0.1,
        "error_cb": quiet,
    }
    with ExitStack() as stack:
        house.furnish(lab, stack)
        with server:
            async with server.client(**options) as client:
                async with living(
                    Agent(server, tmp_path / "state"), Plane(client), replicas=1
                ) as watched:
                    for _ in range(3 * CUTS):
                        await more(watched)
                        await house.lose_power("one")


async def more(watched: Watched) -> None:
    """Until some generations more were acknowledged, and then anywhere."""
    enough = watched.writer.acknowledged + 3
    async with asyncio.timeout(120):
        while watched.writer.acknowledged < enough:
            await asyncio.sleep(0.01)
    await asyncio.sleep(watched.chance.uniform(0.0, 0.3))


async def quiet(_error: Exception) -> None:
    return
