"""A device that lost its memory, against a real nats-server: it says so, and settles nothing by
itself.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent import (
    DEVICE,
    Agent,
    Plane,
    converged,
    eventually,
    manifest,
    rejected,
    said,
)
from tests.natsserver import NatsServer

Pair = tuple[Agent, Plane]
THREE = ("a", "b", "c")
LOST = said("Degraded", "LedgerLost")


def files(*contents: str) -> list[dict[str, Any]]:
    return list(manifest(1, *contents)["scores"])


def other(generation: int) -> Any:
    """Deployment web, of one File that no other one has."""
    value = manifest(generation, "a")
    value["scores"][0] |= {"name": "other", "path": "/srv/web/other"}
    return value


def removal(generation: int, **more: Any) -> Any:
    return manifest(generation, removed=True, **more)


@asynccontextmanager
async def reborn(server: NatsServer, tmp_path: Path, arrives: Any = None) -> AsyncIterator[Pair]:
    """The device had generation 7 of three Files, was stopped, lost its state directory, and finds
    `arrives`.
    """
    async with server.client() as client:
        plane, agent = Plane(client), Agent(server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(7, *THREE))
            await plane.until(converged(7))
        agent.applied.clear()
        if arrives is not None:
            await plane.put(arrives)
        again = Agent(server, tmp_path / "two", agent.disk)
        async with again.run():
            yield again, plane


async def test_a_removal_is_not_removed_while_what_was_told_may_stand(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, removal(8)) as (agent, plane):
        status = await plane.until(LOST)
        assert (status["generation"], list(status["resources"])) == (
            8,
            ["File/f0", "File/f1", "File/f2"],
        )
        assert {(one["phase"], one["reason"]) for one in status["resources"].values()} == {
            ("Unknown", "LedgerLost")
        }
        assert "harmony delete web --remains" in status["message"]
        assert (len(agent.disk), agent.applied) == (3, [])
    async with nats_server.client() as client, agent.run():  # and it says so in its next life, too
        plane = Plane(client)
        await plane.put(removal(9))
        status = await plane.until(lambda status: LOST(status) and status["generation"] == 9)
        assert len(status["resources"]) == 3
        await plane.put(removal(10, remains=files(*THREE)))
        status = await plane.until(said("Removed", ""))
        assert (status["generation"], status["resources"], agent.disk) == (10, {}, {})
    async with nats_server.client() as client, agent.run():
        plane = Plane(client)
        await plane.put(removal(11))
        assert (await plane.until(lambda status: status["generation"] == 11))["phase"] == "Removed"


async def test_the_same_generation_is_taken_back_by_itself(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path) as (agent, plane):
        await eventually(lambda: len(agent.engine.state.records) == 3, "it was not taken back")
        await plane.until(converged(7))
        assert agent.applied == []
        await plane.put(removal(8))
        await plane.until(said("Removed", ""))
        assert agent.disk == {}


async def test_the_prune_guard_is_armed_by_what_was_told(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, manifest(8, "a")) as (agent, plane):
        status = await plane.until(said("Held", "PruneGuard"))
        assert (rejected(status)[0], status["generation"], len(status["resources"])) == (8, 7, 3)
        await plane.put(manifest(9, "a", allow_prune=2))

        def taken_back(status: dict[str, Any]) -> bool:
            return LOST(status) and status["resources"]["File/f0"]["phase"] == "Ready"

        status = await plane.until(taken_back)  # it was exactly as wanted
        assert [one["reason"] for one in status["resources"].values()] == [
            "",
            "LedgerLost",
            "LedgerLost",
        ]
        assert (len(agent.disk), agent.applied) == (3, [])
        await plane.put(manifest(10, "a", allow_prune=2, remains=files(*THREE)[1:]))
        await plane.until(converged(10))
        assert agent.disk == {"/srv/web/f0": b"a"}


async def test_what_differs_since_is_taken_back_by_decision_alone(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, removal(8)) as (agent, plane):
        await plane.until(LOST)
        agent.disk["/srv/web/f1"] = b"by hand"
        await plane.put(
            manifest(9, "new", "b", "c")
        )  # f0 has another spec, f1 was edited, f2 is as wanted
        status = await plane.until(lambda status: LOST(status) and status["generation"] == 9)
        await eventually(lambda: len(agent.engine.state.records) == 1, "f2 was not taken back")
        status = await plane.until(
            lambda status: status["resources"]["File/f2"]["phase"] == "Ready"
        )
        assert [one["reason"] for one in status["resources"].values()] == [
            "LedgerLost",
            "LedgerLost",
            "",
        ]
        assert agent.applied == []
        await plane.put(manifest(10, "new", "b", "c", remains=files(*THREE)[:1]))
        await plane.until(converged(10))
        assert agent.disk == {"/srv/web/f0": b"new", "/srv/web/f1": b"b", "/srv/web/f2": b"c"}


async def test_what_moved_meanwhile_goes_from_where_it_was(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    moved = [{**one, "path": f"/srv/new/{one['name']}"} for one in files(*THREE)]
    async with reborn(nats_server, tmp_path, {**manifest(8), "scores": moved}) as (agent, plane):
        await plane.until(lambda status: LOST(status) and status["generation"] == 8)
        await eventually(lambda: len(agent.disk) == 6, "the new ones were not made")
        await plane.put({**manifest(9), "scores": moved, "remains": files(*THREE)})
        await plane.until(converged(9))


async def test_a_score_that_is_not_what_was_told_is_no_claim(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with reborn(nats_server, tmp_path, removal(8)) as (agent, plane):
        await plane.until(LOST)
        agent.disk["/srv/other"] = b"somebody's"
        await plane.put(removal(9, remains=[{**files("a")[0], "path": "/srv/other"}]))
        await plane.until(lambda status: status["generation"] == 9)
        assert agent.applied == []
        assert agent.disk["/srv/other"] == b"somebody's"


async def test_a_device_that_never_had_anything_lost_nothing(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(removal(1))
            await plane.until(said("Removed", ""))
            await plane.put(manifest(1, "a", deployment="db"), "db")
            await plane.until(converged(1), "db")


async def test_what_was_removed_before_is_not_remembered(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, *THREE))
            await plane.until(converged(1))
            await plane.put(removal(2))
            await plane.until(said("Removed", ""))
        again = Agent(nats_server, tmp_path / "two", agent.disk)
        async with again.run():
            await plane.put(manifest(3, "a"))
            await plane.until(converged(3))
            await plane.put(removal(4))
            await plane.until(said("Removed", ""))


@pytest.mark.parametrize("gone", ["DEL", "PURGE", "bucket"])
async def test_what_was_told_last_is_told_as_lost_though_its_key_is_gone_too(
    nats_server: NatsServer, tmp_path: Path, gone: str
) -> None:
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(7, *THREE))
            await plane.until(converged(7))
        if gone == "bucket":
            await plane.delete_buckets("desired-state")
            await plane.make_buckets("desired-state")
        else:
            await plane.mark(gone)
        again = Agent(nats_server, tmp_path / "two", agent.disk)
        async with again.run():
            status = await plane.until(LOST)
            assert (status["generation"], len(status["resources"])) == (7, 3)
            assert (len(again.disk), again.applied) == (3, [])
            await plane.put(manifest(7, *THREE))
            await plane.until(converged(7))


async def test_an_older_deployment_whose_key_left_no_trace_is_told_as_lost(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """Files carry no marks, and the newest status is another deployment's."""
    old = manifest(7, *THREE, deployment="old")
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(old, "old")
            await plane.until(converged(7), "old")
            await plane.put(other(1))
            await plane.until(converged(1))
        await plane.js.purge_stream("KV_desired-state", subject=f"$KV.desired-state.{DEVICE}.old")
        again = Agent(nats_server, tmp_path / "two", agent.disk)
        async with again.run():
            status = await plane.until(LOST, "old")
            assert (status["generation"], len(status["resources"])) == (7, 3)
            await plane.until(converged(1))
            assert (len(again.disk), again.applied) == (4, [])
            await plane.put(removal(8, deployment="old", remains=old["scores"]), "old")
            await plane.until(said("Removed", ""), "old")
            assert list(again.disk) == ["/srv/web/other"]


async def test_an_old_copy_of_the_memory_is_lost_memory_of_what_came_since(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    """The state directory of generation 2 is put back after generation 3; the bucket was put back
    as well, to 2.
    """
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "one")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(2, "a"))
            await plane.until(converged(2))
        shutil.copytree(agent.state, tmp_path / "copy")
        async with agent.run():
            await plane.put(manifest(3, *THREE))
            await plane.until(converged(3))
        old = Agent(nats_server, tmp_path / "copy", agent.disk, machine=agent.machine)
        await plane.put(manifest(2, "a"))
        async with old.run():
            status = await plane.until(said("Fenced", "StaleGeneration"))
            assert (status["generation"], len(status["resources"]), len(agent.disk)) == (3, 3, 3)
            await plane.put(manifest(3, *THREE))
            await plane.until(converged(3))
            await eventually(lambda: len(old.engine.state.records) == 3, "they were not taken back")
            await plane.put(removal(4))
            await plane.until(said("Removed", ""))
            assert agent.disk == {}
