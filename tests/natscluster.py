"""Three nats-servers as one JetStream cluster, each of which a test may kill and start again.
Loopback only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import nats
import nats.errors
from nats.aio.client import Client

from tests.natsserver import NatsServer, NatsServerFailed, free_ports

SIZE = 3


class NatsCluster:
    """`servers` by name. Replicas of 3 go on while one of them is down."""

    def __init__(self, folder: Path, **options: Any) -> None:
        """`options` as of `NatsServer`, for each."""
        routes = free_ports(SIZE)
        listed = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.servers: dict[str, NatsServer] = {}
        for number, port in enumerate(routes):
            name = f"n{number}"
            config = f'cluster {{ name: "test", listen: "127.0.0.1:{port}", routes: [{listed}] }}'
            self.servers[name] = NatsServer(folder / name, config=config, name=name, **options)

    @property
    def urls(self) -> list[str]:
        return [server.url for server in self.servers.values()]

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """A client of the test's own that goes from one server to another without end."""

        async def ignore(_error: Exception) -> None:
            return

        client = await nats.connect(
            self.urls,
            connect_timeout=3,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            error_cb=ignore,
        )
        try:
            yield client
        finally:
            await client.close()

    async def ready(self, client: Client, seconds: float = 90.0) -> None:
        """Until the cluster has a leader that answers for JetStream."""
        end = time.monotonic() + seconds
        while True:
            try:
                await client.jetstream(timeout=2).account_info()
            except (nats.errors.Error, TimeoutError) as error:
                if time.monotonic() > end:
                    raise NatsServerFailed("the cluster found no leader") from error
                await asyncio.sleep(0.1)
            else:
                return

    def __enter__(self) -> NatsCluster:
        try:
            for server in self.servers.values():
                server.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        for server in self.servers.values():
            server.kill()

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()
