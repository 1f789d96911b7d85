"""A thousand generations, a kind that is allowed no more, an object that stops coming: nothing
grows, nothing ends.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import anyio
import pytest
from nats.js.api import ObjectStoreConfig

from harmony_agent.core.errors import Terminal, Transient
from scores.keys import ACTUAL
from tests.integration.agent import Agent, Plane, converged, eventually, manifest, said
from tests.natsserver import NatsServer
from tests.proxy import Link

Pair = tuple[Agent, Plane]


def sizes(agent: Agent) -> dict[str, int]:
    """What could grow with every generation."""
    engine = agent.engine
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "desired": len(engine.state.desired),
        "records": len(engine.state.records),
        "statuses": len(engine.state.statuses),
        "queue": len(engine.queue),
        "memory": len(engine.worker._memory),
        "waiting": engine.queue.awaited,
        "seen": len(engine.worker.seen["File"]),
    }


async def at_rest(agent: Agent) -> dict[str, int]:
    """The least of each over a while: a heartbeat that is under way is no size to compare with."""
    least = sizes(agent)
    for _ in range(40):
        await anyio.sleep(0.05)
        least = {name: min(least[name], size) for name, size in sizes(agent).items()}
    return least


async def test_a_thousand_generations_leave_nothing(pair: Pair) -> None:
    """Each with a name of its own beside one that stays, and some that wait for another or never
    come to be.
    """
    agent, plane = pair
    before = await at_rest(agent)
    for generation in range(4, 1004):
        value = manifest(generation, "same", "b")
        own = {
            "kind": "File",
            "name": f"g{generation}",
            "path": f"/srv/web/g{generation % 7}",
            "content": "x",
        }
        value["scores"].append({**own, "after": ["File/f0"]})
        await plane.put(value)
    await plane.until(converged(1003), seconds=200)
    await plane.put(manifest(1004, "same", "b"))
    await plane.until(converged(1004))
    grown = lambda: {name: size for name, size in sizes(agent).items() if size > before[name]}  # noqa: E731
    await eventually(lambda: not grown(), f"something has grown over {before}")
    assert sorted(agent.disk) == ["/srv/web/f0", "/srv/web/f1"]


async def test_a_kind_that_is_allowed_no_more(nats_server: NatsServer, tmp_path: Path) -> None:
    """The configuration was changed under an accepted manifest: said, and nothing is touched."""
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path)
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
        agent.allowed = ()
        async with agent.run():
            status = await plane.until(said("Degraded", "KindNotAllowed"))
            assert status["resources"]["File/f0"]["phase"] == "Blocked"
            await plane.put(manifest(2, "b"))
            status = await plane.until(said("Rejected", "KindNotAllowed"))
            assert status["generation"] == 1
            await plane.put(manifest(2, removed=True))
            await anyio.sleep(1.0)
            assert agent.disk == {"/srv/web/f0": b"a"}
        agent.allowed = ("File",)
        async with agent.run():
            await plane.until(said("Removed", ""))
        assert agent.disk == {}


async def test_an_object_that_stops_coming(
    pair: Pair, nats_server: NatsServer, tmp_path: Path
) -> None:
    """The link goes in the middle of an object: a transient error of that one resource, and no
    more.
    """
    _agent, plane = pair
    store = await plane.js.create_object_store(bucket="content", config=ObjectStoreConfig())
    await store.put("large", b"x" * 8_000_000)
    async with Link(nats_server).open() as link:
        async with Agent(
            nats_server, tmp_path / "other", url=link.url, device="pi-02"
        ).run() as agent:
            await eventually(agent.control.connected, "it did not connect")
            got: list[int] = []

            async def write(data: bytes) -> None:
                got.append(len(data))
                if len(got) == 10:
                    link.drop()
                await anyio.sleep(0.01)

            with pytest.raises(Transient):
                await agent.control.fetch("content", "large", 64_000_000, write)
            await eventually(agent.control.connected, "it did not connect again")
            got.clear()

            async def count(data: bytes) -> None:
                got.append(len(data))

            await agent.control.fetch("content", "large", 64_000_000, count)
            assert sum(got) == 8_000_000
            with pytest.raises(Terminal):
                await agent.control.fetch("content", "large", 1000, count)
            with pytest.raises(Transient) as missing:
                await agent.control.fetch("content", "none", 1000, count)
            assert missing.value.reason == "ObjectMissing"
    assert await plane.writes(ACTUAL) == 1
