"""A dry run asks the server if it would take what the real one writes, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from scores.keys import BUCKETS
from tests.integration.agent import Plane
from tests.integration.operator import Operator, Ran, a_file
from tests.natsserver import NatsServer

CONFIG = """
authorization { users: [
  { user: all, password: x }
  { user: reader, password: x, permissions: {
      publish: { deny: ["$KV.>"] } } }
  { user: one, password: x, permissions: {
      publish: { deny: ["$KV.desired-state.pi-02.*"] } } }
  { user: maker, password: x, permissions: {
      publish: { deny: ["$JS.API.STREAM.CREATE.>"] } } }
] }
"""


class As(Operator):
    """An operator who logs in as somebody."""

    user = "all"

    def environment(self) -> dict[str, str]:
        url = self.server.url.replace("nats://", f"nats://{self.user}:x@")
        return {**super().environment(), "HARMONY_SERVER": url}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with NatsServer(tmp_path_factory.mktemp("guarded"), config=CONFIG) as server:
        yield server


async def stored(server: NatsServer) -> dict[str, int]:
    """How many messages each bucket ever stored."""
    async with server.client(user="all", password="x") as client:
        plane = Plane(client)
        return {bucket: await plane.writes(bucket) for bucket in BUCKETS}


def reasons(ran: Ran) -> list[str]:
    """The code of each deployment, or of the whole."""
    if ran.out.startswith("{"):
        return [item["reason"] for item in ran.json["results"]]
    return [ran.error["code"]]


@pytest.mark.parametrize(
    ("user", "code", "found"),
    [
        ("all", 0, ["", ""]),
        ("reader", 4, ["NotAllowed", "NotAllowed"]),
        ("one", 4, ["", "NotAllowed"]),
        ("maker", 4, ["NotAllowed"]),
    ],
)
async def test_what_the_credentials_may_not_write_is_refused_as_by_the_real_one(
    guarded: NatsServer, tmp_path: Path, user: str, code: int, found: list[str]
) -> None:
    operator = As(guarded, tmp_path / "home")
    first = operator.file(f"first-{user}", a_file())
    assert (await operator("apply", first, "-d", "pi-09", "--no-wait")).code == 0  # the buckets
    operator.user = user
    path = operator.file(f"d-{user}", a_file())
    words = ("apply", path, "-d", "pi-01", "-d", "pi-02", "--no-wait", "-o", "json")
    before = await stored(guarded)
    dry = await operator(*words, "--dry-run")
    assert (dry.code, reasons(dry)) == (code, found)
    assert await stored(guarded) == before
    real = await operator(*words)
    assert (real.code, reasons(real)) == (code, found)


async def test_also_of_a_fleet(guarded: NatsServer, tmp_path: Path) -> None:
    operator = As(guarded, tmp_path / "home")
    assert (await operator("fleet", "init")).code == 0
    assert (await operator("fleet", "device", "add", "pi-01", "pi-02", "--class", "web")).code == 0
    path = operator.folder / "fleet.json"
    path.write_text(json.dumps([a_file("fleet")]))
    assert (await operator("fleet", "deployment", "add", "fleet", "--file", str(path))).code == 0
    assert (await operator("apply", operator.file("x", a_file()), "-d", "pi-09")).code == 0
    before = await stored(guarded)
    assert (await operator("fleet", "apply", "--dry-run")).code == 0
    operator.user = "one"
    dry = await operator("fleet", "apply", "--dry-run", "-o", "json")
    assert dry.code == 4
    assert [(one["device"], one["code"]) for one in dry.json["refused"]] == [
        ("pi-02", "NotAllowed")
    ]
    operator.user = "reader"
    dry = await operator("fleet", "apply", "--dry-run", "-o", "json")
    assert (dry.code, dry.error["code"]) == (4, "NotAllowed")
    assert await stored(guarded) == before
    assert (await operator("fleet", "plan")).code == 0  # a look needs no such right
