"""Faults of the control plane, each of which other systems have had: nothing stops, and it is
noticed in time.

A bound is the contract's (poll + 1 s) and `SLACK` for a loaded machine.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from harmony_agent.adapters.nats import connection
from scores.keys import DESIRED
from tests.integration.agent import LINEAGE, Agent, Plane, converged, eventually, manifest, said
from tests.natsserver import NatsServer
from tests.proxy import Link

SLACK = 10.0
Pair = tuple[Agent, Plane]


@asynccontextmanager
async def plane_of(server: NatsServer, device: str = "pi-01") -> AsyncIterator[Plane]:
    async with server.client() as client:
        yield Plane(client, device)


async def publish_and_time(plane: Plane, generation: int, *contents: str) -> float:
    began = time.monotonic()
    await plane.put(manifest(generation, *contents))
    await plane.until(converged(generation))
    return time.monotonic() - began


async def no_consumer(plane: Plane) -> None:
    """A stream may have so many; a device at rest has none, however often it connected."""
    assert await plane.consumers() == []


# -- the server


async def test_nats_cut_for_long_stops_nothing(nats_server: NatsServer, tmp_path: Path) -> None:
    agent = Agent(nats_server, tmp_path / "state")
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with agent.run():
        async with plane_of(nats_server) as plane:
            await plane.put(manifest(1, *"abcde"))
            await plane.until(converged(1))
        nats_server.stop()
        for name in ("f0", "f4"):
            await agent.repairs(f"/srv/web/{name}")
        await anyio.sleep(2.0)
        assert sorted(agent.disk) == [f"/srv/web/f{number}" for number in range(5)]
        nats_server.start()
        async with plane_of(nats_server) as plane:
            status = await plane.until(
                lambda status: status["resources"]["File/f0"]["drift"] is not None
            )
            assert (
                status["resources"]["File/f4"]["drift"]["count"] == 1
            )  # what happened meanwhile is reported
            await plane.put(manifest(2, *"abcdX"))
            await plane.until(converged(2))
    assert agent.applied.count("/srv/web/f1") == 1


@pytest.mark.parametrize("kill", [False, True])
async def test_restarted_server(nats_server: NatsServer, tmp_path: Path, kill: bool) -> None:
    agent = Agent(nats_server, tmp_path / "state")
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with agent.run():
        async with plane_of(nats_server) as plane:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
        nats_server.restart(kill=kill)
        await eventually(agent.control.connected, "it did not connect again")
        await anyio.sleep(2.0)
        async with plane_of(nats_server) as plane:
            assert await publish_and_time(plane, 2, "b") < agent.poll + 1 + SLACK
            await no_consumer(plane)
    assert agent.applied == ["/srv/web/f0", "/srv/web/f0"]


async def test_published_while_the_server_is_away_from_us(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with Link(nats_server).open() as link, plane_of(nats_server) as plane:
        await plane.make_buckets()
        async with Agent(nats_server, tmp_path, url=link.url).run() as agent:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
            for generation in range(2, 7):
                link.drop()
                assert (
                    await publish_and_time(plane, generation, f"{generation}")
                    < agent.poll + 1 + SLACK
                )
            await no_consumer(plane)
            assert agent.applied.count("/srv/web/f0") == 6


async def test_reconnects_without_end(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAIT_SECONDS", 0.001)
    monkeypatch.setattr(connection, "MOST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(connection, "MOST_SLOW_SECONDS", 0.01)
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with Agent(nats_server, tmp_path).run() as agent:
        await eventually(agent.control.connected, "it did not connect")
        nats_server.stop()
        before = agent.control.attempts
        await eventually(lambda: agent.control.attempts - before > 150, "it gave up", 60)
        nats_server.start()
        async with plane_of(nats_server) as plane:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))


@pytest.mark.parametrize("most", [connection.MOST_WAIT_SECONDS, connection.MOST_SLOW_SECONDS])
def test_wait_between_connects_is_jittered_and_capped(most: float) -> None:
    waits = {
        tries: [connection._wait(tries, most) for _ in range(50)] for tries in (0, 1, 5, 60, 10_000)
    }
    assert max(waits[0]) < 0.1
    assert all(0 < wait <= most for many in waits.values() for wait in many)
    assert all(len(set(many)) > 40 for many in waits.values())
    assert min(waits[10_000]) >= most / 2


async def test_bucket_recreated_then_published(pair: Pair) -> None:
    """A plain watcher stays silent for ever."""
    agent, plane = pair
    await plane.delete_buckets(DESIRED)
    await plane.make_buckets(DESIRED)
    assert await publish_and_time(plane, 4, "new", "b") < agent.poll + 1 + SLACK
    assert agent.disk == {"/srv/web/f0": b"new", "/srv/web/f1": b"b"}


async def test_store_lost(nats_server: NatsServer, tmp_path: Path) -> None:
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with Agent(nats_server, tmp_path / "state").run() as agent:
        async with plane_of(nats_server) as plane:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
        nats_server.stop()
        nats_server.wipe()
        nats_server.start()
        await eventually(
            lambda: (
                agent.engine.intake.lost is not None
                and agent.engine.intake.lost.reason == "BucketMissing"
            ),
            "the missing bucket was not noticed",
        )
        async with plane_of(nats_server) as plane:
            await plane.make_buckets()
            await plane.until(said("Held", "DesiredStateMissing"))
            await agent.repairs()
            await plane.put(manifest(2, "b"))
            await plane.until(converged(2))


# -- the link


async def test_paused_server(nats_server: NatsServer, tmp_path: Path) -> None:
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with Agent(nats_server, tmp_path / "state").run() as agent:
        async with plane_of(nats_server) as plane:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
        nats_server.pause()
        await eventually(
            lambda: agent.engine.intake.lost is not None, "it was not noticed that nothing answers"
        )
        await agent.repairs()
        nats_server.resume()
        async with plane_of(nats_server) as plane:
            # what was under way when it paused, and the greeting of a new connection, each have
            # their time-out
            assert await publish_and_time(plane, 2, "b") < agent.poll + 1 + 3 + SLACK


async def test_half_open_link(nats_server: NatsServer, tmp_path: Path) -> None:
    """Nothing arrives over the old connection and nothing fails; a new one works."""
    async with Link(nats_server).open() as link, plane_of(nats_server) as plane:
        await plane.make_buckets()
        async with Agent(nats_server, tmp_path, url=link.url).run() as agent:
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
            for generation in (2, 3):
                link.freeze()
                assert (
                    await publish_and_time(plane, generation, f"{generation}")
                    < agent.poll + 1 + SLACK
                )
            await no_consumer(plane)
            assert agent.applied.count("/srv/web/f0") == 3


async def test_fifty_agents_and_a_server_that_flaps(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    devices = [f"pi-{number:02}" for number in range(50)]
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
    async with Link(nats_server).open() as link, AsyncExitStack() as stack:
        agents = [
            Agent(
                nats_server, tmp_path / device, device=device, url=link.url, poll=1.0, heartbeat=5.0
            )
            for device in devices
        ]
        for agent in agents:
            await stack.enter_async_context(agent.run())
        for flap in range(10):
            await eventually(
                lambda: any(agent.control.connected() for agent in agents), "nobody connects", 60
            )
            if flap % 2:
                link.drop()
            else:
                nats_server.restart(kill=flap % 4 == 0)
        async with nats_server.client() as client:
            planes = [Plane(client, device) for device in devices]
            for plane in planes:
                await plane.put({**manifest(1, "a"), "device": plane.device})
            for plane in planes:
                await plane.until(converged(1), seconds=120)
            await no_consumer(plane)
        assert all(agent.applied == ["/srv/web/f0"] for agent in agents)


# -- generations


async def test_generations_while_a_resource_is_slow_collapse(pair: Pair) -> None:
    agent, plane = pair
    agent.files.gates["f0"] = anyio.Event()
    for generation in range(4, 304):
        await plane.put(manifest(generation, f"{generation}", "b"))
    web = agent.engine.state.deployments["web"]
    await eventually(
        lambda: web.last is not None and web.last.generation == 303, "not all were accepted", 60
    )
    before = len(agent.applied)
    agent.files.gates["f0"].set()
    await plane.until(converged(303))
    assert agent.disk["/srv/web/f0"] == b"303"
    assert len(agent.applied) - before <= 2


async def test_stops_at_once_though_a_resource_is_slow(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
        async with Agent(nats_server, tmp_path / "state").run() as agent:
            agent.files.gates["f0"] = anyio.Event()
            for generation in range(1, 301):
                await plane.put(manifest(generation, f"{generation}"))
            began = time.monotonic()
    assert time.monotonic() - began < 5 + SLACK


async def test_crash_between_apply_and_gc_and_a_generation_missed(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with plane_of(nats_server) as plane:
        agent = Agent(nats_server, tmp_path / "state")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, *"abcde"))
            await plane.until(converged(1))
            agent.files.gates = {
                name: anyio.Event() for name in ("f3", "f4")
            }  # their removal never ends
            await plane.put(manifest(2, *"abC"))
            await eventually(
                lambda: agent.disk["/srv/web/f2"] == b"C", "generation 2 was not applied"
            )
            await eventually(
                lambda: agent.applied.count("/srv/web/f4") >= 1, "the removal did not begin"
            )
        assert {"/srv/web/f3", "/srv/web/f4"} <= agent.disk.keys()
        await plane.put(manifest(3, *"abCde"))  # wants them again, and is never seen
        await plane.put(manifest(4, *"ab"))
        async with agent.run():
            status = await plane.until(converged(4))
            assert sorted(status["resources"]) == ["File/f0", "File/f1"]
            assert agent.disk == {"/srv/web/f0": b"a", "/srv/web/f1": b"b"}
            assert len(agent.engine.state.records) == 2


async def test_crash_with_nats_away_then_gc(nats_server: NatsServer, tmp_path: Path) -> None:
    """What is owned and wanted no more goes from the ledger alone."""
    agent = Agent(nats_server, tmp_path / "state")
    async with plane_of(nats_server) as plane:
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, *"abc"))
            await plane.until(converged(1))
            agent.files.gates["f2"] = anyio.Event()
            await plane.put(manifest(2, *"ab"))
            await eventually(
                lambda: agent.engine.state.deployments["web"].last.generation == 2, "not accepted"
            )  # type: ignore[union-attr]
    nats_server.stop()
    async with agent.run():
        await eventually(
            lambda: "/srv/web/f2" not in agent.disk, "what was owned was not taken off"
        )


async def test_one_that_hangs_holds_up_nobody(pair: Pair) -> None:
    agent, plane = pair
    agent.files.hung.add("f0")
    await plane.put(manifest(4, "new", "new", "new"))
    wanted = {"File/f0": "Progressing", "File/f1": "Ready", "File/f2": "Ready"}
    status = await plane.until(
        lambda status: {key: one["phase"] for key, one in status["resources"].items()} == wanted
    )
    assert (status["phase"], status["generation"]) == ("Progressing", 4)


async def test_state_directory_removed_while_running(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    agent, plane = pair
    shutil.rmtree(agent.state)
    await eventually((agent.state / "ledger.db").exists, "the ledger was not written anew")
    assert "LedgerLost" in {getattr(record, "reason", "") for record in caplog.records}
    await plane.put(manifest(4, "new"))
    status = await plane.until(converged(4))
    assert status["lineage"] == LINEAGE


async def test_what_the_ledger_cannot_write_is_kept_back_and_tried_again(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harmony_agent.core.errors import Transient

    agent, plane = pair
    ledger: Any = agent.engine.state.ledger

    async def full(*_args: Any) -> None:
        raise Transient("LedgerUnwritable", "cannot write the ledger: database or disk is full")

    with monkeypatch.context() as patch:
        for call in ("accept", "put", "forget"):
            patch.setattr(ledger, call, full)
        await plane.put(manifest(4, "new"))
        status = await plane.until(said("Held", "LedgerUnwritable"))
        assert status["generation"] == 3
        await agent.repairs()
    await plane.until(converged(4))
