"""Copies of one home at one server: an older one, one that went another way, two controllers;
nothing is undone.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.manifests import signing_keys
from harmony_fleet.nats.kv import Store
from scores.keys import DESIRED, FLEET
from tests.integration.operator import Operator, Ran, a_file
from tests.integration.simfleet import SimFleet
from tests.natsserver import NatsServer

NAMES = ("pi-01", "pi-02", "pi-03")


class Copies:
    """Operators whose homes are copies of one."""

    def __init__(self, server: NatsServer, folder: Path, store: Store) -> None:
        self.server, self.folder, self.store = server, folder, store
        self.first = Operator(server, folder / "first")

    def copy(self, name: str, of: Operator | None = None) -> Operator:
        """The home as it is now."""
        shutil.copytree((of or self.first).home, self.folder / name)
        return Operator(self.server, self.folder / name)

    async def run(self, operator: Operator, *words: str, code: int = 0) -> Ran:
        ran = await operator("fleet", *words)
        assert ran.code == code, (words, ran.out, ran.err)
        return ran

    async def change(self, operator: Operator, *words: str) -> None:
        told = (await operator("fleet", "status", "-o", "json")).json
        await self.run(operator, *words, "-g", str(told["generation"]))

    async def desired(self) -> dict[str, bytes | None]:
        return {key: entry.value for key, entry in (await self.store.entries(DESIRED)).items()}


@pytest.fixture
async def copies(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Copies]:
    """A fleet at generation 3, applied and signed, whose devices answer."""
    async with (
        nats_server.client() as client,
        Store(Context((nats_server.url,), None, None, tmp_path)) as store,
    ):
        await store.ensure_buckets()
        async with SimFleet(client, NAMES, beat=0.5):
            made = Copies(nats_server, tmp_path, store)
            signing_keys.new(made.first.home)
            await made.run(made.first, "init")
            await made.change(made.first, "device", "add", *NAMES, "--class", "web")
            await deploy(made, made.first, "web", "one")
            await made.run(made.first, "apply", "--wait")
            yield made


async def deploy(
    copies: Copies, operator: Operator, name: str, content: str, verb: str = "add"
) -> None:
    """A File in a file of its own, which lies in the roster's folder."""
    path = operator.home / "fleet" / f"{name}.json"
    path.write_text(json.dumps([a_file(name, content)]))
    await copies.change(operator, "deployment", verb, name, "--file", str(path))


async def test_an_older_copy_reverts_and_removes_nothing(copies: Copies) -> None:
    old = copies.copy("old")
    await deploy(copies, copies.first, "web", "two", "set")
    await deploy(copies, copies.first, "more", "x")
    await copies.change(copies.first, "device", "add", "pi-04", "--class", "web")
    await copies.run(copies.first, "apply", "--no-wait")
    before = await copies.desired()
    for words in (
        ["apply"],
        ["apply", "--device", "pi-01"],
        ["plan"],
        ["reconcile"],
        ["apply", "--dry-run"],
    ):
        ran = (
            await copies.run(old, *words, "-o", "json", code=3)
            if words != ["plan"]
            else await copies.run(old, "plan", code=3)
        )
        assert "generation 3" in ran.err
        assert "generation 6" in ran.err
        assert "harmony fleet pull" in ran.err
        assert "--take-over" in ran.err
        assert "devices: the other one has pi-04" in ran.err
        assert "deployments: the other one has more, differs in web" in ran.err
    found = (await copies.run(old, "verify", "-o", "json", code=1)).json["findings"]
    assert [item["code"] for item in found].count("roster-behind") == 1
    assert await copies.desired() == before


async def test_a_copy_catches_up_by_pull_and_goes_on(copies: Copies) -> None:
    old = copies.copy("old")
    await deploy(copies, copies.first, "web", "two", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    before = await copies.desired()
    told = await copies.run(old, "pull", "-o", "json")
    assert told.json == {"generation": 4, "changed": True, "elsewhere": []}
    assert (old.home / "fleet" / "roster.yaml").read_bytes() == (
        copies.first.home / "fleet" / "roster.yaml"
    ).read_bytes()
    assert (old.home / "fleet" / "roster.yaml.old").exists()
    await copies.run(old, "apply", "--no-wait")
    assert await copies.desired() == before
    assert not (await copies.run(old, "pull", "-o", "json")).json["changed"]
    await deploy(copies, old, "web", "three", "set")
    await copies.run(old, "apply", "--no-wait")
    await copies.run(copies.first, "apply", code=3)
    await copies.run(copies.first, "pull")
    await copies.run(copies.first, "apply", "--no-wait")


async def test_two_that_went_different_ways_from_one_generation(copies: Copies) -> None:
    other = copies.copy("other")
    await deploy(copies, copies.first, "web", "mine", "set")
    await deploy(copies, other, "web", "theirs", "set")
    await deploy(copies, other, "web", "theirs later", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    before = await copies.desired()
    ran = await copies.run(other, "apply", "-o", "json", code=3)
    assert ran.error["code"] == "RosterDiverged"
    assert await copies.desired() == before
    await copies.run(other, "apply", "--take-over", "--no-wait")
    assert all(b"theirs later" in (data or b"") for data in (await copies.desired()).values())
    ran = await copies.run(copies.first, "apply", "-o", "json", code=3)
    assert ran.error["code"] in ("RosterStale", "RosterDiverged")
    await copies.run(copies.first, "pull")
    await copies.run(copies.first, "apply", "--no-wait")
    assert (await copies.run(other, "apply", "-o", "json")).json["writes"] == []


async def test_the_same_generation_with_other_content(copies: Copies) -> None:
    other = copies.copy("other")
    await deploy(copies, copies.first, "web", "mine", "set")
    await deploy(copies, other, "web", "theirs", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    assert (await copies.run(other, "apply", "-o", "json", code=3)).error[
        "code"
    ] == "RosterDiverged"


async def test_a_backup_restored_over_the_home_is_caught(copies: Copies) -> None:
    shutil.copytree(copies.first.home, copies.folder / "backup")
    await deploy(copies, copies.first, "web", "two", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    before = await copies.desired()
    shutil.rmtree(copies.first.home)
    shutil.copytree(copies.folder / "backup", copies.first.home)
    assert (await copies.run(copies.first, "apply", "-o", "json", code=3)).error[
        "code"
    ] == "RosterStale"
    assert await copies.desired() == before
    (copies.first.home / "fleet" / "roster.seal").unlink()
    await copies.run(copies.first, "apply", code=3)
    await copies.run(copies.first, "pull")
    await copies.run(copies.first, "apply", "--no-wait")
    assert await copies.desired() == before
    for name in ("roster.yaml", "roster.seal"):
        (copies.first.home / "fleet" / name).unlink()
    await copies.run(copies.first, "pull")
    await copies.run(copies.first, "verify", code=0)


async def test_a_stale_controller_stops_and_says_why(copies: Copies) -> None:
    old = copies.copy("old")
    stale = await old.process("fleet", "controller", "--interval", "200ms")
    good = await copies.first.process("fleet", "controller", "--interval", "200ms")
    try:
        await asyncio.sleep(2)
        assert (stale.returncode, good.returncode) == (None, None)
        await deploy(copies, copies.first, "web", "two", "set")
        async with asyncio.timeout(30):
            _, err = await stale.communicate()
        assert (stale.returncode, b"RosterStale" in err or b"generation 4" in err) == (3, True), err
        before = await copies.desired()
        assert all(b"two" in (data or b"") for data in before.values())
        await asyncio.sleep(1)
        assert await copies.desired() == before
        assert good.returncode is None
    finally:
        for process in (stale, good):
            if process.returncode is None:
                process.terminate()
                await process.communicate()


async def test_whoever_is_overtaken_while_it_writes_says_so(
    copies: Copies, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = copies.copy("other")
    await deploy(copies, copies.first, "web", "mine", "set")
    await deploy(copies, other, "web", "theirs", "set")
    await deploy(copies, other, "web", "theirs later", "set")
    original = Store.put
    once: list[Any] = []

    async def put(store: Store, bucket: str, key: str, value: bytes, *more: Any) -> int:
        if bucket == DESIRED and not once:
            once.append(key)
            process = await other.process("fleet", "apply", "--take-over", "--no-wait")
            _, err = await process.communicate()
            assert process.returncode == 0, err
        return await original(store, bucket, key, value, *more)

    monkeypatch.setattr(Store, "put", put)
    ran = await copies.run(copies.first, "apply", "-o", "json", "--no-wait", code=3)
    monkeypatch.undo()
    assert ran.error["code"] == "RosterOvertaken"
    assert once


async def test_of_two_that_apply_at_once_one_wins(copies: Copies) -> None:
    others = [copies.copy(f"other-{number}") for number in range(4)]
    for number, operator in enumerate(others):
        await deploy(copies, operator, "web", f"by {number}", "set")
    processes = [await operator.process("fleet", "apply", "--no-wait") for operator in others]
    ends = [(await process.communicate(), process.returncode)[1] for process in processes]
    assert sorted(ends) == [0, 3, 3, 3]
    winner = ends.index(0)
    assert {
        f"by {winner}".encode() in (data or b"") for data in (await copies.desired()).values()
    } == {True}


async def test_without_a_signing_key_the_mark_stands_alone(copies: Copies) -> None:
    shutil.rmtree(copies.first.home / "fleet" / "keys")
    await copies.run(copies.first, "apply", code=3)
    await copies.run(copies.first, "apply", "--take-over", "--no-wait")
    old = copies.copy("old")
    await deploy(copies, copies.first, "web", "two", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    assert "can't be told" in (await copies.run(old, "apply", code=3)).err
    assert (await copies.run(old, "pull", "-o", "json", code=5)).error["code"] == "CopyUnavailable"


async def test_the_copy_tells_nobody_else_anything(copies: Copies) -> None:
    entries = await copies.store.entries(FLEET)
    assert sorted(key.partition(".")[0] for key in entries) == ["copy", "roster"]
    assert not any(
        b"pi-01" in (entry.value or b"") or b"web" in (entry.value or b"")
        for entry in entries.values()
    )
    key = next(key for key in entries if key.startswith("copy"))
    entry = entries[key]
    old = copies.copy("old")
    await deploy(copies, copies.first, "web", "two", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    now = await copies.store.get(FLEET, key)
    await copies.store.put(FLEET, key, entry.value or b"", now.revision)  # an older one, put back
    assert (await copies.run(old, "pull", "-o", "json", code=5)).error["code"] == "CopyUnavailable"
    await copies.run(copies.first, "apply", "--no-wait")
    await copies.run(old, "pull")


async def test_a_mark_that_can_not_be_read_is_no_leave(copies: Copies) -> None:
    key = next(key for key in await copies.store.entries(FLEET) if key.startswith("roster"))
    entry = await copies.store.get(FLEET, key)
    await copies.store.put(FLEET, key, b"{}", entry.revision)
    assert (await copies.run(copies.first, "apply", "-o", "json", code=3)).error[
        "code"
    ] == "MarkUnreadable"


async def test_buckets_that_were_lost_are_no_other_copy(copies: Copies) -> None:
    async with copies.server.client() as client:
        await client.jetstream().delete_key_value(FLEET)
    await deploy(copies, copies.first, "web", "two", "set")
    await copies.run(copies.first, "apply", "--no-wait")
    assert len(await copies.store.entries(FLEET)) == 2
