"""Where TLS is asked for nothing else is ever spoken, by the command and by the agent, whoever sits
between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.adapters.nats.control_plane import NatsControl
from harmony_fleet.context import Context
from harmony_fleet.errors import Unreachable
from harmony_fleet.nats.connection import Connection
from tests.integration.agent import eventually
from tests.integration.operator import Operator
from tests.natsauthority import GuardedServer
from tests.natsjwt import JwtAuthority
from tests.natsserver import NatsServer, free_ports
from tests.proxy import Between

STRANGE = "127.1"
"""Loopback by a spelling that nobody takes for it: a name on the network, as far as the rule
goes.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """How one connects: the addresses, the credentials, the CA."""

    servers: tuple[str, ...]
    creds: Path | None = None
    ca: Path | None = None
    insecure: bool = False


class Attempt:
    """A side that goes on trying: what it has, and what it says of it."""

    def __init__(self, connected: Callable[[], bool], trouble: Callable[[], str]) -> None:
        self.connected = connected
        self.trouble = trouble

    async def up(self) -> None:
        await eventually(self.connected, "it did not connect")

    async def refused(self) -> None:
        await eventually(
            lambda: self.trouble().startswith("TlsMissing"), f"no word of TLS: {self.trouble()}"
        )
        assert not self.connected()


@asynccontextmanager
async def the_agent(asked: Asked) -> AsyncIterator[Attempt]:
    control = NatsControl(
        "pi-01",
        "machine",
        asked.servers,
        credentials=str(asked.creds or ""),
        tls_ca=str(asked.ca or ""),
        insecure=asked.insecure,
    )
    task = asyncio.create_task(control.run())
    try:
        yield Attempt(control.connected, lambda: control.trouble)
    finally:
        task.cancel()
        await asyncio.wait([task])


@asynccontextmanager
async def the_command(asked: Asked) -> AsyncIterator[Attempt]:
    """One that was connected goes on trying; one that never was says at once why, and it is tried
    again here.
    """
    context = Context(
        asked.servers, asked.creds, asked.ca, Path("/nowhere"), insecure=asked.insecure
    )
    found: list[Connection] = []
    said = [""]

    async def stay() -> None:
        while True:
            try:
                async with Connection(context, 10) as connection:
                    found[:] = [connection]
                    while True:
                        await asyncio.sleep(0.1)
                        try:
                            await connection.request("nobody.listens", seconds=1)
                        except Unreachable as error:
                            said[0] = f"{error.code}: {error.message}"
                        except Exception:
                            said[0] = ""
            except Unreachable as error:
                said[0] = f"{error.code}: {error.message}"

    task = asyncio.create_task(stay())
    try:
        yield Attempt(lambda: bool(found) and found[0].connected, lambda: said[0])
    finally:
        task.cancel()
        await asyncio.wait([task])


Side = Callable[[Asked], Any]
both = pytest.mark.parametrize("side", [the_agent, the_command])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedServer]:
    """As `harmony server init` configures it."""
    with GuardedServer(tmp_path_factory.mktemp("guarded")) as running:
        yield running


def ca(server: GuardedServer) -> Path:
    return server.home / "authority" / "ca.pem"


def operator(server: GuardedServer) -> Path:
    return server.home / "authority" / "operator.creds"


@both
@pytest.mark.parametrize("asks", ["scheme", "authority", "credentials"])
async def test_a_server_whose_tls_was_taken_out_gets_nothing(
    server: GuardedServer, side: Side, asks: str
) -> None:
    async with Between(server, strips=True).open() as between:
        asked = {
            "scheme": Asked((f"tls://localhost:{between.port}",)),
            "authority": Asked((f"nats://localhost:{between.port}",), operator(server), ca(server)),
            "credentials": Asked((f"nats://{STRANGE}:{between.port}",), operator(server)),
        }[asks]
        async with side(asked) as attempt:
            await attempt.refused()
        assert between.made > 0
        assert between.in_the_clear() == []


@both
async def test_nor_does_it_when_a_connection_is_lost(server: GuardedServer, side: Side) -> None:
    async with Between(server).open() as between:
        asked = Asked((f"tls://localhost:{between.port}",), operator(server), ca(server))
        async with side(asked) as attempt:
            await attempt.up()
            between.strips = True
            between.drop()
            await attempt.refused()
            between.strips = False
            await attempt.up()
        assert between.in_the_clear() == []


@both
async def test_a_server_in_the_clear_gets_nothing(nats_server: NatsServer, side: Side) -> None:
    async with Between(nats_server).open() as between:
        async with side(Asked((f"tls://localhost:{between.port}",))) as attempt:
            await attempt.refused()
        assert between.in_the_clear() == []


@both
async def test_who_takes_tls_out_names_no_servers(server: GuardedServer, side: Side) -> None:
    """An INFO in the clear leads nowhere, not even where its own TLS is left in: whoever wrote it
    has a certificate.
    """
    async with Between(server).open() as trap:
        forged = {"connect_urls": [f"127.0.0.1:{trap.port}"], "tls_required": True}
        async with Between(server, strips=True, **forged).open() as between:
            asked = Asked((f"tls://localhost:{between.port}",), operator(server), ca(server))
            async with side(asked) as attempt:
                for _ in range(5):
                    await attempt.up()
                    between.drop()
                await attempt.up()
            assert between.in_the_clear() == []
        assert trap.made == 0


@both
async def test_nor_does_a_server_that_a_server_named(tmp_path: Path, side: Side) -> None:
    """Two servers of a cluster; the second is known by its word only, and somebody sits before
    it.
    """
    ports = free_ports(3)
    first = GuardedServer(tmp_path / "first")
    certificates = tmp_path / "first" / "nats"
    second = NatsServer(tmp_path / "second", port=ports[2], name="second")
    async with Between(second, strips=True).open() as between:
        advertised = f'client_advertise: "127.0.0.1:{between.port}"'
        second.config = "\n".join(
            [tls_of(certificates), trust_of(first._made), routes(ports[1], ports[0]), advertised]
        )
        second.jetstream = False
        first._made = without_jetstream(first._made) + routes(ports[0], ports[1])
        with first, second:
            await eventually(lambda: "Route connection created" in first.log(), "no cluster")
            asked = Asked((first.url,), operator(first), ca(first))
            async with side(asked) as attempt:
                await attempt.up()
                await asyncio.sleep(0.2)
                first.stop()
                await eventually(lambda: not attempt.connected(), "it is connected still")
                if side is the_command:
                    await attempt.refused()
                    assert between.made > 0
            assert between.in_the_clear() == []


def routes(own: int, other: int) -> str:
    return f'\ncluster {{ name: c, listen: "127.0.0.1:{own}", routes: ["nats://127.0.0.1:{other}"] }}\n'


def tls_of(folder: Path) -> str:
    return f'tls {{ cert_file: "{folder}/server.pem", key_file: "{folder}/server-key.pem" }}'


def trust_of(made: str) -> str:
    """The operator and its accounts, kept in memory."""
    start, end = made.index("operator:"), made.index("resolver {")
    return made[start:end] + "resolver: MEMORY\n" + made[made.index("resolver_preload {") :]


def without_jetstream(made: str) -> str:
    start = made.index("jetstream {")
    return made[:start] + made[made.index("}", start) + 1 :]


@both
async def test_the_handshake_comes_first_where_the_server_takes_it(
    server: GuardedServer, side: Side
) -> None:
    async with Between(server).open() as between:
        async with side(
            Asked((f"tls://localhost:{between.port}",), operator(server), ca(server))
        ) as attempt:
            await attempt.up()
        assert between.made == 1
        assert between.from_clients[0].startswith(b"\x16\x03")
        assert between.from_servers[0].startswith(b"\x16\x03")  # no INFO to read or to write anew


@both
async def test_a_server_that_speaks_first_gets_its_handshake_all_the_same(
    tmp_path: Path, side: Side
) -> None:
    """As servers do whose configuration was written before; after the first time nothing is tried
    in vain.
    """
    older = GuardedServer(tmp_path)
    older._made = "\n".join(
        line for line in older._made.splitlines() if "handshake_first" not in line
    )
    with older:
        async with Between(older).open() as between:
            async with side(
                Asked((f"tls://localhost:{between.port}",), operator(older), ca(older))
            ) as attempt:
                await attempt.up()
                assert between.made == 2
                between.drop()
                await eventually(lambda: between.made > 2, "it did not connect again")
                await attempt.up()
                assert between.made == 3
        assert between.from_servers[-1].startswith(b"INFO ")
        assert between.in_the_clear() == []


@both
async def test_credentials_go_without_tls_only_where_that_was_said(
    tmp_path: Path, side: Side
) -> None:
    authority = JwtAuthority.make()
    creds = authority.creds(tmp_path / "me.creds")
    with NatsServer(tmp_path / "nats", config=authority.config) as plain:
        async with Between(plain).open() as between:
            there, here = f"nats://{STRANGE}:{between.port}", f"nats://localhost:{between.port}"
            async with side(Asked((there,), creds)) as attempt:
                await attempt.refused()
            assert between.in_the_clear() == []
            for asked in (Asked((there,), creds, insecure=True), Asked((here,), creds)):
                async with side(asked) as attempt:
                    await attempt.up()
            async with side(
                Asked((here.replace("nats:", "tls:"),), creds, insecure=True)
            ) as attempt:
                await attempt.refused()


async def test_the_command_says_so_and_ends_with_4(tmp_path: Path) -> None:
    authority = JwtAuthority.make()
    creds = authority.creds(tmp_path / "me.creds")
    with NatsServer(tmp_path / "nats", config=authority.config) as plain:
        harmony = Operator(plain, tmp_path / "home")
        words = ("--server", f"nats://{STRANGE}:{plain.port}", "--creds", str(creds))
        refused = await harmony("devices", *words, "-o", "json")
        assert (refused.code, refused.error["code"]) == (4, "TlsMissing")
        assert "--insecure" in refused.error["hint"]
        for spelt in (("devices", *words, "--insecure"), ("--insecure", "devices", *words)):
            assert (await harmony(*spelt)).code == 0
        for spelt in (
            ("fleet", "plan", *words),
            ("apply", harmony.file("web"), "--device", "pi-01", *words),
        ):
            ran = await harmony(*spelt, "-o", "json")
            assert ran.code in (2, 4), ran.err  # no roster here


async def test_a_certificate_of_nobody_we_trust_has_a_code_of_its_own(
    server: GuardedServer,
) -> None:
    context = Context((server.url,), operator(server), None, Path("/nowhere"))
    with pytest.raises(Unreachable) as caught:
        async with Connection(context, 3):
            pass
    assert caught.value.code == "TlsUntrusted"
