"""The fixture keeps its word: same port, same store, and what was acknowledged is there after a
kill.
"""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from tests.natsserver import NatsServer, NatsServerFailed


async def put(server: NatsServer, key: str, value: bytes) -> None:
    async with server.client() as client:
        bucket = await client.jetstream().create_key_value(bucket="b", history=4)
        await bucket.put(key, value)


async def get(server: NatsServer, key: str) -> bytes | None:
    async with server.client() as client:
        bucket = await client.jetstream().key_value("b")
        return (await bucket.get(key)).value


@pytest.mark.parametrize("kill", [False, True])
async def test_restart_keeps_port_and_store(nats_server: NatsServer, kill: bool) -> None:
    await put(nats_server, "k", b"v")
    port, pid = nats_server.port, nats_server.pid
    nats_server.restart(kill=kill)
    assert (nats_server.port, nats_server.pid != pid) == (port, True)
    assert await get(nats_server, "k") == b"v"


def greeting(server: NatsServer, timeout: float) -> bytes:
    """The INFO line that a server sends first."""
    with socket.create_connection((server.host, server.port), timeout) as connection:
        return connection.recv(5)


def test_paused_server_answers_nothing_until_it_is_resumed(nats_server: NatsServer) -> None:
    nats_server.pause()
    with pytest.raises(TimeoutError):
        greeting(nats_server, 0.3)
    nats_server.resume()
    assert greeting(nats_server, 5) == b"INFO "


async def test_wipe_forgets_streams(nats_server: NatsServer) -> None:
    await put(nats_server, "k", b"v")
    with pytest.raises(NatsServerFailed):
        nats_server.wipe()
    nats_server.stop()
    nats_server.wipe()
    nats_server.start()
    async with nats_server.client() as client:
        assert await client.jetstream().streams_info() == []


def test_stop_leaves_no_process_even_when_paused(tmp_path: Path) -> None:
    server = NatsServer(tmp_path).start()
    pid = server.pid
    server.pause()
    server.stop()
    assert not server.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_says_why_it_did_not_start(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(NatsServerFailed, match="unknown field"):
        NatsServer(tmp_path, config="no_such_option: 1").start()
    assert time.monotonic() - started < 30
