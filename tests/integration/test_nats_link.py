"""The agent's connection by itself: it ends in any state, leaves nothing of a broken one, and tells no password."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from harmony_agent.adapters.nats_desired import NatsControl
from harmony_agent.topology.control import BucketMissing, Conflict, Unreachable
from scores.keys import ACTUAL
from tests.integration.agent import Plane, eventually
from tests.natsserver import NatsServer
from tests.proxy import Link


@asynccontextmanager
async def running(url: str, **options: Any) -> AsyncIterator[NatsControl]:
    control = NatsControl("pi-01", "machine", [url], poll=0.5, **options)
    task = asyncio.create_task(control.run())
    try:
        yield control
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


async def test_a_hundred_lost_connections_leave_nothing(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped while it writes, as often as not: no task, no descriptor, no complaint of the event loop."""
    caplog.set_level(logging.WARNING)
    async with Link(nats_server).open() as link, nats_server.client() as client:
        await Plane(client).make_buckets()
        async with running(link.url) as control:
            writers = [asyncio.create_task(write_on(control, f"k{number}")) for number in range(4)]
            following = asyncio.create_task(follow(control))
            for _ in range(100):
                await eventually(control.connected, "it did not connect again")
                await anyio.sleep(0.01)
                link.drop()
            for task in (*writers, following):
                task.cancel()
            await asyncio.wait([*writers, following])
            await eventually(control.connected, "it did not connect again")
            await anyio.sleep(0.5)
            ours = [task for task in asyncio.all_tasks() if "nats" in repr(task.get_coro())]
            assert len(ours) <= 14, ours  # the test's client's, the link's own, and one connection's
    gc.collect()
    await anyio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def write_on(control: NatsControl, key: str) -> None:
    number = 0
    while True:
        number += 1
        try:
            await control.put(ACTUAL, key, b"x" * 50_000, None)
        except Unreachable:
            await anyio.sleep(0.001)


async def follow(control: NatsControl) -> None:
    async for _event in control.desired():
        pass


async def test_stops_at_once_in_any_state(nats_server: NatsServer) -> None:
    async with Link(nats_server).open() as link:
        for state in ("connected", "frozen", "connecting", "away"):
            async with running(link.url) as control:
                if state != "away":
                    await eventually(control.connected, "it did not connect")
                if state == "frozen":
                    link.freeze()
                elif state == "connecting":
                    link.drop()
                elif state == "away":
                    nats_server.stop()
                began = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - began < 5, state


async def test_compare_and_set(nats_server: NatsServer) -> None:
    async with nats_server.client() as client, running(nats_server.url) as control:
        await eventually(control.connected, "it did not connect")
        with pytest.raises(BucketMissing):
            await control.put(ACTUAL, "k", b"1", 0)
        with pytest.raises(BucketMissing):
            await control.get(ACTUAL, "k")
        with pytest.raises(BucketMissing):
            await control.birth(ACTUAL)
        plane = Plane(client)
        await plane.make_buckets()
        born = await control.birth(ACTUAL)
        assert await control.get(ACTUAL, "k") is None
        revision = await control.put(ACTUAL, "k", b"1", 0)
        with pytest.raises(Conflict):
            await control.put(ACTUAL, "k", b"2", 0)
        assert await control.put(ACTUAL, "k", b"2", revision) == revision + 1
        entry = await control.get(ACTUAL, "k")
        assert entry is not None
        assert (entry.data, entry.revision) == (b"2", revision + 1)
        await plane.delete_buckets(ACTUAL)
        await plane.make_buckets(ACTUAL)
        assert await control.birth(ACTUAL) != born


async def test_wrong_password_then_the_right_one(nats_server: NatsServer, caplog: pytest.LogCaptureFixture) -> None:
    nats_server.stop()
    nats_server.config = "authorization { user: a, password: right }"
    nats_server.start()
    url = f"nats://a:wrong@127.0.0.1:{nats_server.port}"
    async with running(url) as control:
        await eventually(lambda: control.attempts > 3, "it gave up")
        assert not control.connected()
        nats_server.stop()
        nats_server.config = "authorization { user: a, password: wrong }"
        nats_server.start()
        await eventually(control.connected, "it did not try again")
    text = " ".join(record.getMessage() for record in caplog.records)
    assert "uthorization" in text
    assert "wrong" not in text


async def test_a_server_that_carries_less_than_is_said(nats_server: NatsServer) -> None:
    nats_server.stop()
    nats_server.config = "max_payload: 1000"
    nats_server.start()
    async with running(nats_server.url) as control:
        await eventually(control.connected, "it did not connect")
        with pytest.raises(Unreachable):
            await control.put(ACTUAL, "k", b"x" * 2000, None)
