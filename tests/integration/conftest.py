"""A nats-server for integration tests: a fresh one a test, and one shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.natsserver import NatsServer


@pytest.fixture
def nats_server(tmp_path: Path) -> Iterator[NatsServer]:
    """A server of this test's own, with an empty store: it may be stopped, killed, paused, wiped."""
    with NatsServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture(scope="module")
def shared_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that a module's tests share: leave it running, and use keys of your own."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server
