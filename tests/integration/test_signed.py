"""Signed manifests against a real server: who owns NATS, but no signing key, makes a device do
nothing; keys rotate.

The attacker here has the server's full rights: whatever stands in a bucket, in any form and order,
may be theirs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.core.signatures import Trust
from harmony_fleet.manifests import signing_keys
from scores.keys import DESIRED
from scores.manifest import decode
from scores.names import MAX_GENERATION
from scores.signatures import read_key
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
from tests.integration.operator import Operator, Ran
from tests.integration.simfleet import SimFleet
from tests.keys import FOREIGN, NEXT, ROSTER, signed, trust
from tests.natsserver import NatsServer

Pair = tuple[Agent, Plane]

OLD = signed(manifest(2, "old", "b"))
NOW = signed(manifest(3, SECRET, "b"))
REAL = signed(manifest(4, "new", "b"))
"""What the roster signs next, and the attacker may have seen already."""


def bare(value: dict[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "signatures"}


def spaced(value: dict[str, Any]) -> bytes:
    """The same value in other bytes."""
    return json.dumps(value, indent=1).encode()


FOR_PI_02 = signed({**manifest(9, "theirs"), "device": "pi-02"})
FOR_DB = signed(manifest(9, "theirs", deployment="db"))
INVALID, MISSING, UNKNOWN = "SignatureInvalid", "SignatureMissing", "SignatureUnknownKey"

ATTACKS: dict[str, tuple[Any, str, str, int]] = {
    "replayed": (OLD, "Fenced", "StaleGeneration", 2),
    "replayed, as the next": ({**OLD, "generation": 4}, "Rejected", INVALID, 4),
    "the same again, in other bytes": (spaced(NOW), "Rejected", "NotCanonical", 3),
    "the next, in other bytes": (spaced(REAL), "Rejected", "NotCanonical", 4),
    "altered": ({**REAL, "scores": manifest(4, "evil", "b")["scores"]}, "Rejected", INVALID, 4),
    "altered under the generation that is enforced": (
        {**NOW, "scores": manifest(3, "evil", "b")["scores"]},
        "Rejected",
        INVALID,
        3,
    ),
    "a field more": ({**REAL, "allow_prune": 1000}, "Rejected", INVALID, 4),
    "emptied": ({**REAL, "scores": []}, "Rejected", INVALID, 4),
    "of another device": (FOR_PI_02, "Rejected", "KeyMismatch", 9),
    "re-addressed from another device": ({**FOR_PI_02, "device": "pi-01"}, "Rejected", INVALID, 9),
    "of another deployment": (FOR_DB, "Rejected", "KeyMismatch", 9),
    "re-addressed from another deployment": ({**FOR_DB, "deployment": "web"}, "Rejected", INVALID, 9),
    "stripped of its signature": (bare(REAL), "Rejected", MISSING, 4),
    "stripped, the last": (bare(NOW), "Rejected", MISSING, 3),
    "never signed": (manifest(4, "evil", "b"), "Rejected", MISSING, 4),
    "an empty list of signatures": ({**REAL, "signatures": []}, "Rejected", MISSING, 4),
    "signed by a stranger": (signed(manifest(4, "evil", "b"), FOREIGN), "Rejected", UNKNOWN, 4),
    "signed by a stranger under our name": (
        {**manifest(4, "evil"), "signatures": [{**FOREIGN.entry(manifest(4, "evil")), "key": ROSTER.id}]},
        "Rejected",
        INVALID,
        4,
    ),
    "another's signature": ({**manifest(4, "evil"), "signatures": NOW["signatures"]}, "Rejected", INVALID, 4),
    "downgraded and unsigned": (manifest(1, "evil"), "Rejected", MISSING, 1),
    "a removal, unsigned": (manifest(4, removed=True), "Rejected", MISSING, 4),
    "a removal, with a signature": ({**REAL, "removed": True, "scores": []}, "Rejected", INVALID, 4),
    "taken over, unsigned": (manifest(4, "evil", lineage=OTHER, supersedes=LINEAGE), "Rejected", MISSING, 4),
    "taken over, with a signature": ({**REAL, "lineage": OTHER, "supersedes": LINEAGE}, "Rejected", INVALID, 4),
    "the last generation that there is": (
        {**REAL, "generation": MAX_GENERATION},
        "Rejected",
        INVALID,
        MAX_GENERATION,
    ),
}  # fmt: skip


@pytest.fixture
async def guarded(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Pair]:
    """A live agent that believes the roster's key alone, and has converged on generation 3 of
    `web`.
    """
    async with live(nats_server, tmp_path / "state", trust=trust()) as (agent, plane):
        await plane.put(OLD)
        await plane.until(converged(2))
        await plane.put(NOW)
        await plane.until(converged(3))
        yield agent, plane


async def test_with_the_server_s_full_rights_and_without_the_key(
    guarded: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    agent, plane = guarded
    caplog.set_level(logging.DEBUG, "harmony_agent")
    disk, applied = dict(agent.disk), list(agent.applied)
    for name, (value, phase, reason, generation) in ATTACKS.items():
        await plane.put(value)

        def told(
            status: dict[str, Any], wanted: tuple[str, str, int] = (phase, reason, generation)
        ) -> bool:
            newer = status["rejected"] or {}
            return (status["phase"], status["reason"], newer.get("generation")) == wanted

        status = await plane.until(told)
        enforces(3, status)
        assert (agent.disk, agent.applied) == (disk, applied), name
        await plane.put(NOW)  # the right one again, so that the next attack is told by its own word
        assert (await plane.until(converged(3)))["rejected"] is None, name
    await agent.repairs()
    assert not any(SECRET in record.getMessage() for record in caplog.records)
    await plane.put({**REAL, "generation": MAX_GENERATION})
    await plane.until(said("Rejected", INVALID))
    await plane.put(REAL)  # and none of them blocks the right one
    assert (await plane.until(converged(4)))["rejected"] is None
    assert agent.disk["/srv/web/f0"] == b"new"


async def test_other_signatures_over_the_same_content_are_the_same_generation(
    guarded: Pair,
) -> None:
    agent, plane = guarded
    digest, applied = (await plane.status() or {})["digest"], list(agent.applied)
    made_up = {"key": "0" * 16, "signature": FOREIGN.entry(NOW)["signature"]}
    for again in (
        signed(bare(NOW), ROSTER, FOREIGN),
        {**NOW, "signatures": [made_up, *NOW["signatures"]]},
        {**NOW, "signatures": [*NOW["signatures"], {**made_up, "key": FOREIGN.id}]},
        NOW,
    ):
        await plane.put(bare(REAL))
        await plane.until(said("Rejected", MISSING))
        await plane.put(again)
        status = await plane.until(converged(3))
        assert (status["rejected"], status["digest"], agent.applied) == (None, digest, applied)
    await plane.put({**REAL, "signatures": [made_up]})  # by itself it is a stranger's
    await plane.until(said("Rejected", UNKNOWN))
    await plane.put({**REAL, "signatures": [made_up, *REAL["signatures"]]})
    await plane.until(converged(4))


async def test_a_deployment_that_nobody_signed_is_not_begun_nor_taken(guarded: Pair) -> None:
    agent, plane = guarded
    for value in (
        manifest(MAX_GENERATION, "evil", deployment="db", lineage=OTHER),
        {**FOR_PI_02, "deployment": "db"},
    ):
        await plane.put(value, "db")
        status = await plane.until(lambda status: status["phase"] == "Rejected", "db")
        assert (status["generation"], status["lineage"], status["resources"]) == (None, None, {})
    file = {"kind": "File", "name": "theirs", "path": "/srv/db/f0", "content": "theirs"}
    await plane.put(signed({**manifest(9, deployment="db"), "scores": [file]}), "db")
    assert (await plane.until(converged(9), "db"))["lineage"] == LINEAGE
    assert agent.disk["/srv/db/f0"] == b"theirs"


async def test_keys_that_are_deleted_and_buckets_that_are_made_anew_change_nothing(
    guarded: Pair,
) -> None:
    agent, plane = guarded
    disk = dict(agent.disk)
    await plane.mark("PURGE")
    await plane.until(said("Held", "DesiredStateMissing"))
    await plane.delete_buckets(DESIRED)
    await plane.make_buckets(DESIRED)
    await plane.put(bare(REAL))
    enforces(3, await plane.until(said("Rejected", MISSING)))
    await agent.repairs()
    assert agent.disk == disk


async def test_after_the_device_lost_its_memory_actual_state_is_what_a_replay_is_judged_by(
    guarded: Pair, nats_server: NatsServer
) -> None:
    agent, plane = guarded
    await plane.put(REAL)
    await plane.until(converged(4))
    other = Agent(nats_server, agent.state.with_name("anew"), trust=trust(), machine=agent.machine)
    await plane.put(bare(REAL))  # nothing unsigned may overwrite what actual-state remembers
    await plane.until(said("Rejected", MISSING))
    async with other.run():
        await eventually(lambda: "web" in other.engine.state.deployments, "it saw nothing")
        await plane.put(OLD)
        status = await plane.until(said("Fenced", "StaleGeneration"))
        assert (status["generation"], status["lineage"]) == (4, LINEAGE)
        assert (other.disk, other.applied) == ({}, [])


async def test_without_require_only_what_is_wrong_is_refused(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with live(nats_server, tmp_path / "state", trust=trust(require=False)) as (agent, plane):
        await plane.put(manifest(1, "a"))
        await plane.until(converged(1))
        await plane.put(signed(manifest(2, "b"), FOREIGN))
        await plane.until(converged(2))
        await plane.put({**REAL, "scores": manifest(4, "evil")["scores"]})
        status = await plane.until(said("Rejected", INVALID))
        assert rejected(status) == (4, INVALID, [("signatures", INVALID)])
        await plane.put(REAL)
        await plane.until(converged(4))
        assert b"evil" not in agent.disk.values()


async def test_what_was_accepted_before_signatures_were_required_goes_on_and_is_named(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    async with live(nats_server, tmp_path / "state") as (agent, plane):
        await plane.put(manifest(3, SECRET, "b"))
        await plane.until(converged(3))
    agent.trust = trust()
    nats_server.stop()
    async with agent.run():  # offline: from memory, and it says so at once
        await eventually(lambda: told(agent) == ("Rejected", MISSING, 3), "it was not told")
        await agent.repairs()
    nats_server.start()
    async with nats_server.client() as client:
        plane = Plane(client)
        async with agent.run():
            enforces(3, await plane.until(said("Rejected", MISSING)))
            await plane.put(NOW)  # the same generation, signed now
            await plane.until(converged(3))
        nats_server.stop()
        async with agent.run():  # and that is what it remembers
            await agent.repairs()
            assert told(agent)[1] != MISSING
        nats_server.start()
    async with nats_server.client() as client:
        plane = Plane(client)
        async with agent.run():
            await plane.put(signed(manifest(4, SECRET, "b")))
            await plane.until(converged(4))
        agent.trust = trust(NEXT)  # the key was taken away
        async with agent.run():
            status = await plane.until(said("Rejected", UNKNOWN))
            assert status["generation"] == 4
            await agent.repairs()
            await plane.put(signed(manifest(5, SECRET, "b"), NEXT))
            await plane.until(converged(5))


def told(agent: Agent) -> tuple[str, str, int | None]:
    status = agent.engine.publisher.status("web")
    return (
        (status.phase, status.reason, status.generation) if status is not None else ("", "", None)
    )


# -- the operator's side


class Site:
    """An operator with a roster whose one device is a real agent."""

    def __init__(self, operator: Operator, agent: Agent, plane: Plane) -> None:
        self.operator, self.agent, self.plane = operator, agent, plane
        self.said = ""

    async def __call__(self, *words: str, code: int = 0) -> Ran:
        ran = await self.operator(*words)
        self.said += ran.out + ran.err
        assert ran.code == code, (words, ran.out, ran.err)
        return ran

    def trusts(self, *ids: str) -> None:
        """What the device's configuration has, from its next start on."""
        keys = {
            key.id: read_key(key.spelt)
            for key in signing_keys.all_keys(self.operator.home)
            if key.id in ids
        }
        assert len(keys) == len(ids)
        self.agent.trust = Trust(True, keys, trust().valid)

    async def findings(self) -> list[tuple[str, str]]:
        told = (await self("fleet", "doctor", "-o", "json")).json["findings"]
        return [(item["code"], item["detail"]) for item in told]

    async def converged(self, content: bytes) -> None:
        await self("fleet", "apply", "--wait", "--timeout", "40s")
        assert self.agent.disk == {"/srv/motd": content}


def scores(path: Path, content: str) -> str:
    path.write_text(
        json.dumps([{"kind": "File", "name": "motd", "path": "/srv/motd", "content": content}])
    )
    return str(path)


async def test_a_key_is_rotated_with_an_overlap(
    nats_server: NatsServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets()
        site = Site(operator, Agent(nats_server, tmp_path / "state"), plane)
        old = (await site("fleet", "key", "new", "-o", "json")).json["key"]
        path = operator.folder / "web.json"
        await site("fleet", "init")
        await site("fleet", "device", "add", "pi-01", "--class", "web", "-g", "1")
        await site("fleet", "deployment", "add", "web", "--file", scores(path, "one"), "-g", "2")
        site.trusts(old)
        async with site.agent.run():
            await site.converged(b"one")
            assert await site.findings() == []
            applied = list(site.agent.applied)
            new = (await site("fleet", "key", "new", "-o", "json")).json["key"]
            assert sorted(await site.findings()) == [
                ("projection-differs", f"SignatureMissing {new}"),
                ("trust-differs", f"lacks {new}"),
            ]
            await site.converged(b"one")  # signed by both, and the device knows the old one
            assert await site.findings() == [("trust-differs", f"lacks {new}")]
            await site(
                "fleet", "key", "retire", old
            )  # too early: the device doesn't know its successor
            refused = await site("fleet", "apply", "--wait", "--timeout", "40s", code=5)
            assert "[trust] keys" in refused.err
            assert (await plane.status() or {})["generation"] == 2  # nothing was written
            await site("fleet", "key", "retire", old, "--undo")
            await site.converged(b"one")
        site.trusts(old, new)
        async with site.agent.run():
            await plane.until_value(
                "device-info", "info.pi-01", lambda info: len(info["trust"]["keys"]) == 2
            )
            assert await site.findings() == []
            await site("fleet", "key", "retire", old)
            await site.converged(b"one")
            assert await site.findings() == [("trust-differs", f"still trusts {old}")]
        assert site.agent.applied == applied  # through all of it nothing on the device was touched
        site.trusts(new)
        async with site.agent.run():
            await plane.until_value(
                "device-info", "info.pi-01", lambda info: info["trust"]["keys"] == [new]
            )
            assert await site.findings() == []
            await site(
                "fleet", "deployment", "set", "web", "--file", scores(path, "two"), "-g", "3"
            )
            await site.converged(b"two")
            stranger = Operator(nats_server, tmp_path / "stranger")
            theirs = stranger.file(
                "web", {"kind": "File", "name": "evil", "path": "/srv/evil", "content": "x"}
            )
            ran = await stranger("apply", theirs, "--device", "pi-01", "--take-over", "-o", "json")
            assert (ran.code, ran.error["code"]) == (5, MISSING)
            lineage = (await site("fleet", "status", "-o", "json")).json["lineage"]
            await plane.put(
                signed(manifest(9, "evil", lineage=lineage))
            )  # by a key that was never theirs
            await plane.until(said("Rejected", UNKNOWN))
            assert ("signature-refused", UNKNOWN) in await site.findings()
            before = (await plane.status() or {})["generation"]
            told = await site("wait", "web", "--device", "pi-01", "--timeout", "40s", code=1)
            assert UNKNOWN in told.out
            assert "[trust] keys" in told.err
            await plane.put(
                manifest(MAX_GENERATION, "evil", lineage=OTHER)
            )  # nobody's word: no lineage, no last generation
            await plane.until(said("Rejected", MISSING))
            assert ("signature-refused", MISSING) in await site.findings()
            await site(
                "fleet", "deployment", "set", "web", "--file", scores(path, "three"), "-g", "4"
            )
            await site.converged(b"three")
            assert (await plane.status() or {})["generation"] == before + 1
            assert await site.findings() == []
        await nothing_secret(
            site, [path.parent.parent / "fleet" / "keys"], caplog, nats_server, tmp_path
        )


async def nothing_secret(
    site: Site,
    folders: list[Path],
    caplog: pytest.LogCaptureFixture,
    server: NatsServer,
    tmp_path: Path,
) -> None:
    """The private halves are in the keys' own files and nowhere else."""
    halves = [
        key.read_text().strip().partition(":")[2] for folder in folders for key in folder.iterdir()
    ]
    assert len(halves) == 2
    messages = [record.getMessage() for record in caplog.records]
    for half in halves:
        assert half not in site.said
        assert not any(half in message for message in messages)
        for path in tmp_path.rglob("*"):
            if path.is_file() and path.parent not in folders:
                assert half.encode() not in path.read_bytes(), path


async def test_whoever_writes_a_manifest_signs_it(
    nats_server: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apply, delete, fleet apply, reconcile, upgrade start and what it leaves, removal: every
    message is looked at.
    """
    monkeypatch.setattr("harmony_fleet.rollout.runs.follow.LOOK_SECONDS", 0.1)
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets()
        seen: list[tuple[str, bytes]] = []

        async def note(message: Any) -> None:
            if message.data:
                seen.append((message.subject.removeprefix(f"$KV.{DESIRED}."), bytes(message.data)))

        await client.subscribe(f"$KV.{DESIRED}.>", cb=note)
        async with SimFleet(client, ["pi-01"], beat=0.2):
            site = Site(operator, Agent(nats_server, tmp_path / "state"), plane)
            await site("fleet", "key", "new")
            await site("fleet", "key", "new")
            one = operator.file(
                "one", {"kind": "File", "name": "a", "path": "/srv/a", "content": "x"}
            )
            await site("apply", one, "--device", "pi-01", "--wait")
            await site("delete", "one", "--device", "pi-01", "--wait")
            await site("fleet", "init")
            await site("fleet", "device", "add", "pi-01", "--class", "web", "-g", "1")
            path = scores(operator.folder / "web.json", "one")
            await site("fleet", "deployment", "add", "web", "--file", path, "-g", "2")
            await site("fleet", "apply", "--wait")
            await site("fleet", "device", "set", "pi-01", "--disable", "-g", "3")
            await site("fleet", "reconcile")
            await site("fleet", "device", "set", "pi-01", "--enable", "-g", "4")
            await site("upgrade", "start", "--all", "--deadline", "60s", "--max-unavailable", "1")
            await site("fleet", "deployment", "remove", "web", "-g", "5")
            await site("fleet", "reconcile")
        keys = {key.id: read_key(key.spelt) for key in signing_keys.all_keys(operator.home)}
        assert {key.partition(".")[2].partition("-")[0] for key, _ in seen} == {
            "one",
            "web",
            "upgrade",
        }
        assert {b'"removed":true' in data for _, data in seen} == {True, False}
        for key, data in seen:
            device, _, deployment = key.partition(".")
            wire = decode(data, device=device, deployment=deployment)
            assert sorted(item.key for item in wire.signatures or ()) == sorted(keys), key
            for name, public in keys.items():
                assert (
                    Trust(True, {name: public}, trust().valid).verify(json.loads(data), 1) is None
                ), key


CONFIG = """
[agent]
device_id = "pi-01"
state_dir = "{state}"
kinds = ["File"]
[nats]
servers = ["{url}"]
[trust]
require = true
keys = ["{key}"]
[files]
roots = ["{root}"]
"""


async def test_the_agent_as_it_is_run_believes_what_its_configuration_names(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    root, config = tmp_path / "root", tmp_path / "agent.toml"
    root.mkdir()
    config.write_text(
        CONFIG.format(state=tmp_path / "state", url=nats_server.url, key=ROSTER.spelt, root=root)
    )
    wanted = [{"kind": "File", "name": "f", "path": f"{root}/f", "content": "x"}]
    program = "import sys; from harmony_agent.cli import main; sys.exit(main())"
    async with nats_server.client() as client:
        plane = Plane(client)
        await plane.make_buckets()
        agent = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            program,
            "run",
            "--config",
            str(config),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await plane.put({**manifest(1), "scores": wanted})
            await plane.until(said("Rejected", MISSING))
            assert list(root.iterdir()) == []
            await plane.put(signed({**manifest(1), "scores": wanted}))
            await plane.until(converged(1))
            assert (root / "f").read_text() == "x"
            info = await plane.get("device-info", "info.pi-01")
            assert (info or {})["trust"] == {"require": True, "keys": [ROSTER.id]}
        finally:
            agent.terminate()
            assert await agent.wait() == 0
