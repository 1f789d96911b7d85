"""`harmony adopt` and `harmony delete --remains`: what becomes of what a device that lost its
memory had.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.integration.agent import Agent, Plane, eventually, said
from tests.integration.operator import Operator, a_file
from tests.natsserver import NatsServer

LOST = said("Degraded", "LedgerLost")
WAIT = ("--wait", "--timeout", "40s")


@asynccontextmanager
async def forgetful(
    server: NatsServer, tmp_path: Path
) -> AsyncIterator[tuple[Operator, Agent, Plane]]:
    """A device that had two Files and lost its memory; it isn't running."""
    operator = Operator(server, tmp_path / "operator")
    async with server.client() as client:
        agent = Agent(server, tmp_path / "one")
        async with agent.run():
            ran = await operator("apply", wanted(operator, "a", "b"), "-d", "pi-01", *WAIT)
            assert ran.code == 0, ran
        yield operator, Agent(server, tmp_path / "two", agent.disk), Plane(client)


def wanted(operator: Operator, *contents: str, **more: Any) -> str:
    scores = [a_file(f"f{number}", content, **more) for number, content in enumerate(contents)]
    return operator.file("web", *scores)


async def test_delete_says_what_remains_and_takes_it_off_when_that_is_said(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with forgetful(nats_server, tmp_path) as (operator, agent, plane):
        await operator("delete", "web", "-d", "pi-01", "--no-wait")
        async with agent.run():
            await plane.until(LOST)
            ran = await operator("delete", "web", "-d", "pi-01", *WAIT)
            assert ran.code == 5, ran
            assert "LedgerLost" in ran.out
            assert "--remains" in ran.err
            told = (await operator("status", "-o", "json")).json
            row = next(iter(told["deployments"] if isinstance(told, dict) else told))
            assert (row["phase"], row["reason"], len(row["status"]["resources"])) == (
                "Degraded",
                "LedgerLost",
                2,
            )
            assert len(agent.disk) == 2
            ran = await operator("adopt", "pi-01/web")
            assert ran.code == 2, ran
            ran = await operator("delete", "web", "-d", "pi-01", "--remains", *WAIT)
            assert ran.code == 0, ran
            assert agent.disk == {}
            assert (await plane.status() or {})["phase"] == "Removed"


async def test_adopt_takes_back_what_is_wanted(nats_server: NatsServer, tmp_path: Path) -> None:
    async with forgetful(nats_server, tmp_path) as (operator, agent, plane):
        agent.disk["/srv/f0"] = b"by hand"
        ran = await operator("apply", wanted(operator, "a", "new"), "-d", "pi-01", "--no-wait")
        async with agent.run():
            await plane.until(lambda status: LOST(status) and status["generation"] == 2)
            ran = await operator("wait", "web", "-d", "pi-01", "--timeout", "40s")
            assert ran.code == 5, ran
            assert (agent.disk["/srv/f0"], agent.disk["/srv/f1"]) == (b"by hand", b"b")
            ran = await operator("adopt", "pi-01/web", *WAIT)
            assert ran.code == 0, ran
            assert agent.disk == {"/srv/f0": b"a", "/srv/f1": b"new"}
            ran = await operator("adopt", "pi-01/web", *WAIT)
            assert (ran.code, "nothing to do" in ran.err) == (0, True)


async def test_adopt_takes_nothing_off_unless_that_is_said(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with forgetful(nats_server, tmp_path) as (operator, agent, plane):
        await operator("apply", wanted(operator, "a"), "-d", "pi-01", "--no-wait")
        async with agent.run():
            await plane.until(lambda status: LOST(status) and status["generation"] == 2)
            await eventually(lambda: len(agent.engine.state.records) == 1, "f0 was not taken back")
            ran = await operator("adopt", "pi-01/web", *WAIT, "-o", "json")
            assert (ran.code, ran.error["code"]) == (5, "RemainsUnwanted"), ran
            assert len(agent.disk) == 2
            ran = await operator("adopt", "pi-01/web", "--remains", *WAIT)
            assert ran.code == 0, ran
            assert agent.disk == {"/srv/f0": b"a"}


async def test_what_nobody_knows_any_more_has_to_be_looked_for(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with forgetful(nats_server, tmp_path) as (operator, agent, plane):
        await plane.mark("PURGE")
        await operator("delete", "web", "-d", "pi-01", "--no-wait")
        async with agent.run():
            await plane.until(LOST)
            ran = await operator("delete", "web", "-d", "pi-01", "--remains", *WAIT, "-o", "json")
            assert (ran.code, ran.error["code"]) == (5, "RemainsUnknown"), ran
            assert "File/f0, File/f1" in ran.error["message"]
            leave = ("--leave", "File/f0", "--leave", "File/f1")
            ran = await operator("delete", "web", "-d", "pi-01", "--remains", *leave, *WAIT)
            assert ran.code == 0, ran
            assert len(agent.disk) == 2
