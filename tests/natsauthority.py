"""A nats-server as `harmony server init` configures it, on a free port of loopback, and the home
that rules it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from harmony_fleet.authority import enroll, setup
from harmony_fleet.authority.authority_store import Authority
from harmony_fleet.authority.enrolled import EnrollOptions
from harmony_fleet.authority.setup import ServerRequest
from harmony_fleet.context import Context, load_context
from harmony_fleet.manifests import signing_keys
from scores.bundle import Bundle
from tests.natsserver import NatsServer, free_ports

OBJECTS = "files"


class GuardedServer(NatsServer):
    """The configuration of `folder`/nats, but for where it listens."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        wanted = ServerRequest("fleet", folder / "nats", ("localhost",), objects=(OBJECTS,))
        setup.init(self.home, setup.checked(wanted))
        signing_keys.new(self.home)
        self._made = (folder / "nats" / "server.conf").read_text()

    @property
    def url(self) -> str:
        return f"tls://localhost:{self.port}"

    @property
    def store(self) -> Path:
        return self.folder / "nats" / "jetstream"

    def _conf(self) -> str:
        listen = f'listen: "127.0.0.1:{self.port or -1}"\nports_file_dir: "{self.folder}"\nlame_duck_duration: "30s"'
        return re.sub(r"^listen: .*$", listen, self._made, count=1, flags=re.MULTILINE)

    def start(self, timeout: float = 15.0) -> GuardedServer:
        super().start(timeout)
        place = self.home / setup.CONTEXT
        place.write_text(
            re.sub(
                r"^server = .*$", f'server = ["{self.url}"]', place.read_text(), flags=re.MULTILINE
            )
        )
        return self

    def __enter__(self) -> GuardedServer:
        return self.start()

    def client(self, **options: Any) -> AbstractAsyncContextManager[Client]:
        """As NatsServer's; the operator's where no credentials are given."""
        return super().client(**self.options() | options)

    def context(self) -> Context:
        return load_context(environ={"HARMONY_HOME": str(self.home)})

    def authority(self) -> Authority:
        return Authority.load(self.home)

    def bundle(self, device: str, **asked: Any) -> Bundle:
        """Enroll a device; the servers need not know."""
        authority = self.authority()
        with authority.locked():
            return enroll.enroll(
                authority, self.home, device, EnrollOptions(servers=(self.url,), **asked)
            )

    def creds(self, device: str) -> Path:
        """A device's .creds file."""
        path = self.folder / f"{device}.creds"
        if not path.exists():
            path.write_text(self.bundle(device).credentials)
        return path

    def options(self, creds: Path | None = None) -> dict[str, Any]:
        """Of a client of the test's own; the operator's where no credentials are given."""
        import ssl

        ca = self.home / "authority" / "ca.pem"
        tls = ssl.create_default_context(cafile=str(ca))
        return {
            "user_credentials": str(creds or self.home / "authority" / "operator.creds"),
            "tls": tls,
        }


class _Node(NatsServer):
    """One server of a cluster, on an address of loopback of its own."""

    def __init__(self, folder: Path, made: str, host: str, port: int) -> None:
        super().__init__(folder, host=host, port=port)
        self._made = made.replace('"0.0.0.0:', f'"{host}:')

    @property
    def url(self) -> str:
        return f"tls://{self.host}:{self.port}"

    def _conf(self) -> str:
        return self._made


class GuardedCluster:
    """Three servers as `harmony server init` makes them for three hosts, and their home."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir(parents=True)
        port, route_port = free_ports(2)
        hosts = tuple(f"127.0.0.{number}" for number in (1, 2, 3))
        nodes = setup.init(
            self.home,
            setup.checked(
                ServerRequest("fleet", folder / "nats", hosts, port=port, route_port=route_port)
            ),
        )
        signing_keys.new(self.home)
        self.servers = [
            _Node(
                folder / node.name,
                (folder / "nats" / node.name / "server.conf").read_text(),
                node.host,
                node.port,
            )
            for node in nodes
        ]

    @property
    def url(self) -> str:
        return self.servers[0].url

    async def pushed(self, command: Callable[..., Awaitable[Any]]) -> None:
        """The accounts and the buckets, as soon as there is a leader."""
        for _ in range(60):
            ran = await command("server", "push")
            if ran.code == 0:
                return
            await asyncio.sleep(0.5)
        raise AssertionError(ran.err)
