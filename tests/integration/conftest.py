"""A nats-server for integration tests: a fresh one a test, and one shared by the tests of a
module.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.integration.agent import SECRET, Agent, Plane, converged, live, manifest
from tests.integration.operator import Operator
from tests.integration.simulated import SimulatedDevice
from tests.natsserver import NatsServer


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test's own, with an empty store: it may be stopped, killed, paused,
    wiped.
    """
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(scope="module")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that a module's tests share: leave it running, and use keys of your own."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def pair(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[tuple[Agent, Plane]]:
    """A live agent that has converged on generation 3 of `web`, and the control plane's hand."""
    async with live(nats_server, tmp_path / "state") as (agent, plane):
        await plane.put(manifest(3, SECRET, "b"))
        await plane.until(converged(3))
        yield agent, plane


@pytest.fixture
def operator(shared_nats: NatsServer, tmp_path: Path) -> Operator:
    """The command `harmony`, with a lineage of its own, at the shared server."""
    return Operator(shared_nats, tmp_path / "operator")


@pytest.fixture
async def device(shared_nats: NatsServer) -> AsyncIterator[SimulatedDevice]:
    """A device with a name of its own that told of itself and is heard of."""
    async with shared_nats.client() as client:
        simulated = SimulatedDevice(client, f"pi-{uuid.uuid4().hex[:8]}")
        await simulated.tell(labels={"site": simulated.name})
        await simulated.beat()
        yield simulated
