"""The contract's acceptance table, row by row, against a real nats-server: what arrives. What goes
is beside it.
"""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from scores.keys import ACTUAL
from tests.integration.agent import (
    LINEAGE,
    OTHER,
    SECRET,
    Agent,
    Plane,
    converged,
    enforces,
    eventually,
    live,
    manifest,
    rejected,
    said,
)
from tests.natsserver import NatsServer

Pair = tuple[Agent, Plane]

# -- the same lineage


async def test_higher_generation_is_persisted_and_converges(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(4, "new", "b"))
    status = await plane.until(converged(4))
    assert agent.disk == {"/srv/web/f0": b"new", "/srv/web/f1": b"b"}
    assert status["resources"]["File/f0"]["generation"] == 4
    assert status["resources"]["File/f1"]["generation"] == 3  # its own spec did not change
    [stored] = [entry.stored for entry in agent.engine.state.deployments.values()]
    assert stored is not None
    assert stored.digest == status["digest"]
    assert agent.applied.count("/srv/web/f1") == 1


async def test_a_generation_may_be_left_out(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(9, "new"))
    await plane.until(converged(9))
    assert agent.disk == {"/srv/web/f0": b"new"}


async def test_same_bytes_again_are_nothing_to_do(pair: Pair) -> None:
    agent, plane = pair
    writes = await plane.writes(ACTUAL)
    revision = await plane.put(manifest(3, SECRET, "b"))
    await eventually(lambda: agent.engine.intake.revision == revision, "the entry was not read")
    await anyio.sleep(1.0)
    assert await plane.writes(ACTUAL) == writes
    assert agent.applied == ["/srv/web/f0", "/srv/web/f1"]


async def test_same_generation_other_bytes(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(3, "other", "b"))
    status = await plane.until(said("Rejected", "GenerationReused"))
    enforces(3, status)
    assert rejected(status) == (3, "GenerationReused", [("generation", "GenerationReused")])
    await agent.repairs()
    await plane.put(manifest(3, SECRET, "b"))  # the right one again
    assert (await plane.until(converged(3)))["rejected"] is None


async def test_lower_generation(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(2, "older"))
    status = await plane.until(said("Fenced", "StaleGeneration"))
    enforces(3, status)
    assert rejected(status) == (2, "StaleGeneration", [])
    assert "2" in status["message"]
    assert "3" in status["message"]
    await agent.repairs()
    await plane.put(manifest(4, "newer"))
    assert (await plane.until(converged(4)))["rejected"] is None


# -- another lineage


async def test_another_lineage_is_fenced_until_it_supersedes(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(manifest(7, "new", lineage=OTHER))
    status = await plane.until(said("Fenced", "LineageChanged"))
    enforces(3, status)
    assert rejected(status) == (7, "LineageChanged", [])
    await plane.put(manifest(8, "new", lineage=OTHER, supersedes=OTHER))
    status = await plane.until(
        lambda status: status["rejected"] is not None and status["rejected"]["generation"] == 8
    )
    assert (status["phase"], status["reason"]) == ("Fenced", "LineageChanged")
    await agent.repairs()
    await plane.put(
        manifest(2, "new", lineage=OTHER, supersedes=LINEAGE)
    )  # superseding doesn't go back
    await plane.until(said("Fenced", "StaleGeneration"))
    await plane.put(manifest(9, "new", lineage=OTHER, supersedes=LINEAGE))
    assert (await plane.until(converged(9)))["lineage"] == OTHER
    assert agent.disk == {"/srv/web/f0": b"new"}
    await plane.put(manifest(10, "old master"))  # the replaced authority is back
    status = await plane.until(said("Fenced", "LineageChanged"))
    assert status["generation"] == 9


# -- not valid here

FILE = {"kind": "File", "name": "f0", "path": "/srv/web/f0", "content": SECRET}
TWO = [FILE, {**FILE, "name": "f1", "path": "/srv/web/f1"}]
BAD = {
    "not JSON": (b"{" + SECRET.encode(), "NotJson", [("", "NotJson")]),
    "an unknown field": (
        [{**FILE, "sh": SECRET}],
        "UnknownField",
        [("scores[0].sh", "UnknownField")],
    ),
    "an unknown kind": ([{**FILE, "kind": "Shell"}], "UnknownKind", [("scores[0]", "UnknownKind")]),
    "a kind not allowed here": (
        [{"kind": "SystemdUnit", "name": "web.service"}],
        "KindNotAllowed",
        [("scores[0].kind", "KindNotAllowed")],
    ),
    "a path outside": (
        [{**FILE, "path": "/etc/shadow"}],
        "PathOutsideRoots",
        [("scores[0].path", "PathOutsideRoots")],
    ),
    "two of one key": (
        [FILE, {**FILE, "path": "/srv/x"}],
        "DuplicateResource",
        [("scores[1].name", "DuplicateResource")],
    ),
    "two of one path": (
        [FILE, {**FILE, "name": "f1"}],
        "DuplicatePath",
        [("scores[1].path", "DuplicatePath")],
    ),
    "after that names nothing": (
        [{**FILE, "after": ["File/none"]}],
        "AfterUnknown",
        [("scores[0].after[0]", "AfterUnknown")],
    ),
    "after in a circle": (
        [{**TWO[0], "after": ["File/f1"]}, {**TWO[1], "after": ["File/f0"]}],
        "AfterCycle",
        [("scores[0]", "AfterCycle")],
    ),
}


@pytest.mark.parametrize("case", BAD)
async def test_not_valid(pair: Pair, case: str) -> None:
    agent, plane = pair
    value, reason, errors = BAD[case]
    raw = isinstance(value, bytes)
    await plane.put(value if raw else {**manifest(4), "scores": value})
    status = await plane.until(said("Rejected", reason))
    enforces(3, status)
    assert rejected(status) == (None if raw else 4, reason, errors)
    await agent.repairs()
    await plane.put(manifest(5, "good"))
    assert (await plane.until(converged(5)))["rejected"] is None


@pytest.mark.parametrize("field", ["device", "deployment"])
async def test_not_the_keys_own(pair: Pair, field: str) -> None:
    agent, plane = pair
    await plane.put({**manifest(4, "new"), field: "other"})
    status = await plane.until(said("Rejected", "KeyMismatch"))
    enforces(3, status)
    assert rejected(status) == (4, "KeyMismatch", [(field, "KeyMismatch")])
    assert (status["device"], status["deployment"]) == ("pi-01", "web")
    await agent.repairs()


async def test_too_large(tmp_path: Path) -> None:
    with NatsServer(tmp_path / "nats", config="max_payload: 8MB") as server:
        async with live(server, tmp_path / "state") as (agent, plane):
            await plane.put(manifest(3, SECRET))
            await plane.until(converged(3))
            await plane.put(manifest(4, *["x" * 400_000] * 3))
            status = await plane.until(said("Rejected", "TooLarge"))
            enforces(3, status)
            assert rejected(status) == (None, "TooLarge", [("", "TooLarge")])
            await agent.repairs()


async def test_a_name_and_a_path_that_another_deployment_owns(pair: Pair) -> None:
    agent, plane = pair
    await plane.put(
        {**manifest(1, deployment="db"), "scores": [{**FILE, "path": "/srv/db/f0"}]}, "db"
    )
    status = await plane.until(said("Rejected", "OwnedByAnotherDeployment"), "db")
    assert rejected(status) == (
        1,
        "OwnedByAnotherDeployment",
        [("scores[0].name", "OwnedByAnotherDeployment")],
    )
    assert (status["generation"], status["resources"]) == (None, {})
    assert "belongs to the deployment web" in status["message"]
    await plane.put({**manifest(1, deployment="db"), "scores": [{**FILE, "name": "mine"}]}, "db")
    status = await plane.until(
        lambda status: status["rejected"]["errors"][0]["field"] == "scores[0].path", deployment="db"
    )
    assert rejected(status) == (
        1,
        "OwnedByAnotherDeployment",
        [("scores[0].path", "OwnedByAnotherDeployment")],
    )
    await agent.repairs()
    await plane.put(
        {**manifest(4), "scores": [TWO[1]]}
    )  # web lets go of f0: db may have it, without being written again
    await plane.until(converged(1), "db")
    await plane.until(converged(4))
    assert agent.disk == {"/srv/web/f0": SECRET.encode(), "/srv/web/f1": SECRET.encode()}
