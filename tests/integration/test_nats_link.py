"""The agent's connection by itself: it ends in any state, leaves nothing of a broken one, and tells
no password.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import nats.errors
import nkeys
import pytest

from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_agent.topology.control_plane import BucketMissing, Conflict, Unreachable
from scores.keys import ACTUAL, command_subject
from tests.integration.agent import Plane, eventually
from tests.natsserver import NatsServer
from tests.proxy import Link


@asynccontextmanager
async def running(url: str, **options: Any) -> AsyncIterator[NatsControl]:
    control = NatsControl("pi-01", "machine", [url], poll=0.5, **options)
    # As the agent ends it: the library may swallow a cancellation, and a scope says it again.
    async with anyio.create_task_group() as group:
        group.start_soon(control.run)
        try:
            yield control
        finally:
            group.cancel_scope.cancel()
    assert group.cancel_scope.cancelled_caught


async def test_a_hundred_lost_connections_leave_nothing(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Dropped while it writes, as often as not: no task, no descriptor, no complaint of the event
    loop.
    """
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
            # the test's client's, the link's own, and one connection's
            await eventually(
                lambda: len(of_nats()) <= 14, "tasks of connections that are gone stay"
            )
    gc.collect()
    await anyio.sleep(0)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def of_nats() -> list[Any]:
    return [task for task in asyncio.all_tasks() if "nats" in repr(task.get_coro())]


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
            assert asyncio.get_running_loop().time() - began < 5 + 10, state  # 10: a loaded machine


async def test_compare_and_set(nats_server: NatsServer) -> None:
    async with nats_server.client() as client, running(nats_server.url) as control:
        await eventually(control.connected, "it did not connect")
        with pytest.raises(BucketMissing):
            await control.put(ACTUAL, "k", b"1", 0)
        with pytest.raises(BucketMissing):
            await control.get(ACTUAL, "k")
        with pytest.raises(BucketMissing):
            await control.bucket_created_at(ACTUAL)
        plane = Plane(client)
        await plane.make_buckets()
        born = await control.bucket_created_at(ACTUAL)
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
        assert await control.bucket_created_at(ACTUAL) != born


async def test_wrong_password_then_the_right_one(
    nats_server: NatsServer, caplog: pytest.LogCaptureFixture
) -> None:
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


SEED = "SUAA-this-is-no-seed"


async def test_credentials_that_cannot_be_read_end_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The device is kept as it is without NATS; the log says why there is none, and not what the
    file holds.
    """
    seed = nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_USER)  # type: ignore[no-untyped-call]
    user = nkeys.from_seed(seed).public_key.decode()  # type: ignore[no-untyped-call]
    creds = tmp_path / "agent.creds"
    creds.write_text(
        "-----BEGIN NATS USER JWT-----\nabc\n------END NATS USER JWT------\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    with NatsServer(
        tmp_path / "server", config=f"authorization {{ users = [{{nkey: {user}}}] }}"
    ) as server:
        async with running(server.url, credentials=str(creds)) as control:
            await eventually(lambda: control.attempts > 3, "it gave up")
            assert not control.connected()
    said = [
        record.getMessage()
        for record in caplog.records
        if record.name == "harmony_agent.adapters.nats.connection"
    ]
    assert any("credentials" in line for line in said), said
    assert SEED not in caplog.text


async def test_a_command_that_hangs_holds_up_no_other(nats_server: NatsServer) -> None:
    async def answer(verb: str, _request: bytes) -> bytes:
        if verb == "logs":
            await anyio.sleep_forever()
        return b"{}"

    async with running(nats_server.url) as control, nats_server.client() as client:
        serving = asyncio.create_task(control.serve(answer))
        await eventually(control.connected, "it did not connect")
        await client.publish(command_subject("pi-01", "logs"), b"{}", reply=client.new_inbox())
        async with asyncio.timeout(10):
            while True:
                with contextlib.suppress(nats.errors.NoRespondersError):
                    assert (
                        await client.request(command_subject("pi-01", "ping"), b"", timeout=5)
                    ).data == b"{}"
                    break
        with pytest.raises(nats.errors.NoRespondersError):
            await client.request(command_subject("pi-01", "shell"), b"", timeout=5)
        serving.cancel()
        await asyncio.wait([serving])
