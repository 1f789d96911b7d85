"""The contract's acceptance table against a real nats-server: keys, buckets, NATS and the device's
memory that go.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from harmony_agent.core.resources import Key
from scores.keys import ACTUAL, BUCKETS, DESIRED
from tests.integration.agent import (
    LINEAGE,
    OTHER,
    SECRET,
    Agent,
    Plane,
    converged,
    enforces,
    eventually,
    manifest,
    rejected,
    said,
)
from tests.natsserver import NatsServer

Pair = tuple[Agent, Plane]
FILE = {"kind": "File", "name": "f0", "path": "/srv/web/f0", "content": SECRET}

# -- gone


@pytest.mark.parametrize("operation", ["DEL", "PURGE"])
async def test_key_gone(pair: Pair, operation: str) -> None:
    agent, plane = pair
    await plane.mark(operation)
    status = await plane.until(said("Held", "DesiredStateMissing"))
    enforces(3, status)
    assert status["rejected"] is None
    await agent.repairs()
    assert agent.disk == {"/srv/web/f0": SECRET.encode(), "/srv/web/f1": b"b"}
    await plane.put(manifest(2, "from before"))
    await plane.until(said("Fenced", "StaleGeneration"))
    await plane.put(manifest(3, SECRET, "b"))
    await plane.until(converged(3))


async def test_key_gone_over_a_restart_of_the_agent(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path)
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))
        await plane.mark("PURGE")
        async with agent.run():
            enforces(1, await plane.until(said("Held", "DesiredStateMissing")))
            await agent.repairs()


async def test_key_of_what_was_never_accepted_gone(pair: Pair) -> None:
    _agent, plane = pair
    await plane.put(b"nothing", "db")
    await plane.until(said("Rejected", "NotJson"), "db")
    await plane.mark("DEL", "db")
    status = await plane.until(said("Held", "DesiredStateMissing"), "db")
    assert (status["generation"], status["rejected"]) == (None, None)
    await plane.put(
        {**manifest(1, deployment="db"), "scores": [{**FILE, "name": "db", "path": "/srv/db"}]},
        "db",
    )
    await plane.until(converged(1), "db")


async def test_bucket_deleted(pair: Pair) -> None:
    agent, plane = pair
    writes = await plane.writes(ACTUAL)
    await plane.delete_buckets(DESIRED)
    lost = lambda: agent.engine.intake.lost  # noqa: E731
    await eventually(
        lambda: lost() is not None and lost().reason == "BucketMissing", "the loss was not noticed"
    )
    await agent.repairs()
    status = await plane.status()
    assert status is not None
    assert (status["phase"], status["generation"]) == ("Converged", 3)
    assert await plane.writes(ACTUAL) - writes <= 2  # the repair is drift, and nothing else is said


async def test_bucket_recreated(pair: Pair) -> None:
    agent, plane = pair
    await plane.delete_buckets(DESIRED)
    await plane.make_buckets(DESIRED)
    status = await plane.until(
        said("Held", "DesiredStateMissing"), seconds=agent.poll + 1 + 10
    )  # 10: a loaded machine
    enforces(3, status)
    await agent.repairs()
    assert agent.disk == {"/srv/web/f0": SECRET.encode(), "/srv/web/f1": b"b"}
    await plane.put(manifest(1, "from a new authority"))
    await plane.until(said("Fenced", "StaleGeneration"))
    await plane.put(manifest(4, "next"))
    await plane.until(converged(4))


async def test_bucket_recreated_with_a_manifest_in_it(pair: Pair) -> None:
    """As many entries as before: only the consumer that is gone with the bucket tells."""
    _agent, plane = pair
    await plane.delete_buckets(DESIRED)
    await plane.make_buckets(DESIRED)
    await plane.put(manifest(4, "next"))
    await plane.until(converged(4))


async def test_all_buckets_recreated(pair: Pair) -> None:
    """The control plane lost all: the device tells again what it holds, and takes nothing off."""
    agent, plane = pair
    await plane.delete_buckets(*BUCKETS)
    await plane.make_buckets()
    enforces(3, await plane.until(said("Held", "DesiredStateMissing")))
    await plane.until_value("device-info", "info.pi-01", lambda info: info["device"] == "pi-01")
    await plane.until_value("device-heartbeat", "heartbeat.pi-01", lambda beat: beat["seq"] > 0)
    assert len(agent.disk) == 2


async def test_nats_unreachable_at_start(nats_server: NatsServer, tmp_path: Path) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path)
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, "a", "b"))
            await plane.until(converged(1))
    nats_server.stop()
    del agent.disk["/srv/web/f1"]  # a reboot lost it
    async with agent.run():
        await eventually(
            lambda: agent.disk.get("/srv/web/f1") == b"b", "nothing is done without NATS"
        )
        await agent.repairs()
        shown = lambda: [(status.phase, status.generation) for status in agent.engine.statuses()]  # noqa: E731
        await eventually(lambda: shown() == [("Converged", 1)], "it is not converged without NATS")
        nats_server.start()
        async with nats_server.client() as client:
            plane = Plane(client)
            await plane.put(manifest(2, "c"))
            await plane.until(converged(2))
    assert agent.disk == {"/srv/web/f0": b"c"}


async def test_first_start_with_nats_unreachable(nats_server: NatsServer, tmp_path: Path) -> None:
    nats_server.stop()
    async with Agent(nats_server, tmp_path).run() as agent:
        await eventually(lambda: agent.control.attempts >= 3, "it does not try to connect")
        nats_server.start()
        async with nats_server.client() as client:
            plane = Plane(client)
            await plane.make_buckets()
            await plane.put(manifest(1, "a"))
            await plane.until(converged(1))


async def test_keys_that_name_no_deployment_are_told_in_device_info(pair: Pair) -> None:
    agent, plane = pair
    for key in ("Web", "-x"):
        await plane.put(manifest(1, "x"), key)
    await eventually(lambda: len(agent.engine.intake.ignored()) == 2, "they are noticed")
    agent.engine.heartbeats.invalidate()  # else it is looked at each minute
    info = await plane.until_value("device-info", "info.pi-01", lambda info: "ignored_keys" in info)
    assert info["ignored_keys"] == ["pi-01.-x", "pi-01.Web"]
    for key in ("Web", "-x"):
        await plane.mark("PURGE", key)
    await eventually(lambda: not agent.engine.intake.ignored(), "they are forgotten")
    agent.engine.heartbeats.invalidate()
    await plane.until_value(
        "device-info", "info.pi-01", lambda info: "api" in info and "ignored_keys" not in info
    )


# -- actual-state is the device's to keep


async def test_a_status_that_others_took_away_comes_back_with_a_heartbeat(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(
        {**manifest(1, deployment="db"), "scores": [{**FILE, "name": "db", "path": "/srv/db/f0"}]},
        "db",
    )
    await plane.until(converged(1), "db")
    before = {name: await plane.status(name) for name in ("web", "db")}
    stream, subject = f"KV_{ACTUAL}", f"$KV.{ACTUAL}.pi-01."

    async def purge_all() -> None:
        await plane.js.purge_stream(stream)

    async def purge_one() -> None:
        await plane.js.purge_stream(stream, subject=f"{subject}db")

    async def mark() -> None:
        await plane.js.publish(f"{subject}web", b"", headers={"KV-Operation": "DEL"})

    async def replace() -> None:
        await plane.js.publish(f"{subject}db", b"nonsense")

    for take_away in (purge_all, purge_one, mark, replace):
        await take_away()
        with anyio.fail_after(40):
            while {name: await plane.status(name) for name in before} != before:
                await anyio.sleep(0.05)
        writes = await plane.writes(ACTUAL)
        await anyio.sleep(5 * agent.heartbeat)
        assert await plane.writes(ACTUAL) == writes


async def test_a_stranger_s_key_beside_ours_is_looked_at_once(pair: Pair) -> None:
    agent, plane = pair
    await plane.js.publish(f"$KV.{ACTUAL}.pi-01.nobody", b"x")
    looks: list[str] = []
    get = agent.control.get

    async def counted(bucket: str, key: str) -> Any:
        looks.append(key)
        return await get(bucket, key)

    agent.control.get = counted  # type: ignore[method-assign]
    await eventually(lambda: "pi-01.web" in looks, "it was not looked at")
    looks.clear()
    await anyio.sleep(5 * agent.heartbeat)
    assert "pi-01.web" not in looks


# -- the guards


async def test_prune_guard_and_allow_prune(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(4, SECRET, "b", "c", "d", "e"))
    await plane.until(converged(4))
    await plane.put(manifest(5, SECRET, "b"))
    status = await plane.until(said("Held", "PruneGuard"))
    enforces(4, status)
    assert rejected(status) == (5, "PruneGuard", [("allow_prune", "PruneGuard")])
    assert "3 of 5" in status["message"]
    assert len(agent.disk) == 5
    await agent.repairs("/srv/web/f4")
    await plane.put(manifest(6, SECRET, "b", allow_prune=2))
    status = await plane.until(lambda status: status["rejected"]["generation"] == 6)
    assert (status["phase"], status["reason"]) == ("Held", "PruneGuard")
    await plane.put(manifest(7, SECRET, "b", allow_prune=3))
    await plane.until(converged(7))
    assert agent.disk == {"/srv/web/f0": SECRET.encode(), "/srv/web/f1": b"b"}


async def test_the_prune_guard_counts_what_is_wanted_and_not_made_yet(pair: Pair) -> None:
    agent, plane = pair
    agent.files.gates |= {f"f{number}": anyio.Event() for number in range(2, 5)}
    await plane.put(manifest(4, SECRET, "b", "c", "d", "e"))
    await eventually(lambda: Key("File", "f4") in agent.engine.state.desired, "it was not accepted")
    await plane.put(manifest(5))
    status = await plane.until(said("Held", "PruneGuard"))
    assert (rejected(status)[0], status["generation"]) == (5, 4)
    assert "5 of 5" in status["message"]
    for gate in agent.files.gates.values():
        gate.set()
    await plane.put(manifest(4, SECRET, "b", "c", "d", "e"))
    await plane.until(converged(4))
    assert len(agent.disk) == 5


async def test_half_may_go_without_a_word(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(4, SECRET))
    await plane.until(converged(4))
    await plane.put(manifest(5))  # the last one: not more than one
    await plane.until(converged(5))
    assert agent.disk == {}


async def test_an_object_that_is_not_ours(pair: Pair) -> None:
    agent, plane = pair
    agent.disk["/srv/web/f2"] = b"by hand"
    await plane.put(manifest(4, SECRET, "b", "c"))
    status = await plane.until(said("Degraded", "OwnershipConflict"))
    assert status["resources"]["File/f2"]["phase"] == "Blocked"
    assert agent.disk["/srv/web/f2"] == b"by hand"
    del agent.disk["/srv/web/f2"]
    await plane.until(converged(4))


# -- removed


async def test_removed_takes_all_off_and_leaves_a_tombstone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path)
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, *"abcde"))
            await plane.until(converged(1))
            await plane.put(manifest(2, removed=True))
            status = await plane.until(said("Removed", ""))
            assert (status["generation"], status["resources"], status["rejected"]) == (2, {}, None)
            assert agent.disk == {}
            assert list(agent.engine.state.records) == []
            await plane.put(manifest(1, *"abcde"))  # the tombstone fences, too
            status = await plane.until(said("Fenced", "StaleGeneration"))
            assert status["generation"] == 2
            await plane.mark("PURGE")
            await plane.until(said("Removed", ""))
        async with agent.run():
            await anyio.sleep(1.0)
            assert agent.disk == {}
            await plane.put(manifest(1, *"abcde"))
            await plane.until(said("Fenced", "StaleGeneration"))
            await plane.put(manifest(3, "again"))
            await plane.until(converged(3))
    assert agent.disk == {"/srv/web/f0": b"again"}


async def test_removed_but_not_the_next(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(2, removed=True))
    enforces(3, await plane.until(said("Fenced", "StaleGeneration")))
    await plane.put(manifest(9, removed=True, lineage=OTHER))
    enforces(3, await plane.until(said("Fenced", "LineageChanged")))
    await plane.put({**manifest(4, "a"), "removed": True})
    enforces(3, await plane.until(said("Rejected", "RemovedWithScores")))
    await agent.repairs()


async def test_removed_of_what_was_never_here(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(1, removed=True, deployment="db"), "db")
    assert (await plane.until(said("Removed", ""), "db"))["generation"] == 1
    assert len(agent.disk) == 2


# -- a device that lost its own memory


@asynccontextmanager
async def reborn(server: NatsServer, tmp_path: Path, arrives: Any) -> AsyncIterator[Pair]:
    """The device accepted generation 7, lost its state directory, and finds `arrives` in
    desired-state.
    """
    async with server.client() as client:
        plane, agent = Plane(client), Agent(server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(7, "seven"))
            await plane.until(converged(7))
        await plane.put(arrives)
        again = Agent(server, tmp_path / "two", agent.disk)
        async with again.run():
            yield again, plane


async def test_fresh_state_directory_is_fenced_by_actual_state(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, manifest(6, "six")) as (agent, plane):
        status = await plane.until(said("Fenced", "StaleGeneration"))
        assert (status["generation"], status["lineage"]) == (7, LINEAGE)
        assert {key: one["reason"] for key, one in status["resources"].items()} == {
            "File/f0": "LedgerLost"
        }
        assert agent.disk == {"/srv/web/f0": b"seven"}
    again = Agent(nats_server, tmp_path / "two", agent.disk)
    async with nats_server.client() as client, again.run():  # and it is not forgotten by being said
        plane = Plane(client)
        await plane.put(b"rubbish")
        assert (await plane.until(said("Rejected", "NotJson")))["generation"] == 7
        await plane.put(manifest(6, "six"))
        assert (await plane.until(said("Fenced", "StaleGeneration")))["generation"] == 7
        await plane.put(manifest(8, "seven"))
        await plane.until(converged(8))


async def test_fresh_state_directory_with_the_same_generation(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, manifest(7, "seven")) as (agent, _plane):
        await eventually(lambda: agent.engine.state.records != {}, "it was not taken back")
        await agent.repairs()  # taken back, for it was exactly as wanted
        assert agent.applied == ["/srv/web/f0"]


async def test_fresh_state_directory_with_the_same_generation_of_other_bytes(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, manifest(7, "other")) as (agent, plane):
        assert (await plane.until(said("Rejected", "GenerationReused")))["generation"] == 7
        assert agent.disk == {"/srv/web/f0": b"seven"}


async def test_fresh_state_directory_with_another_lineage(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, manifest(8, "eight", lineage=OTHER)) as (agent, plane):
        assert (await plane.until(said("Fenced", "LineageChanged")))["lineage"] == LINEAGE
        assert agent.disk == {"/srv/web/f0": b"seven"}
