"""A device with credentials of its own on a real server: it works whole, and they are replaced and
withdrawn.
"""

from __future__ import annotations

import json
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import KeyValueConfig, StorageType

from harmony_agent.core.errors import Transient
from harmony_fleet.authority import live, permissions
from scores.bundle import Bundle, InvalidBundle, decode
from scores.canonical import canonical
from scores.jetstream import kv_stream
from scores.keys import ACTUAL, BUCKETS, DESIRED, DEVICE_WRITES, HISTORY, command_subject
from tests.integration.agent import Agent, Plane, converged, eventually, manifest, said
from tests.integration.operator import Operator
from tests.natsauthority import OBJECTS, GuardedCluster, GuardedServer


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[GuardedServer]:
    with GuardedServer(tmp_path / "guarded") as server:
        yield server


class Command(Operator):
    """The command `harmony` with the server's authority in its home; the context file says where
    the server is.
    """

    def __init__(self, server: GuardedServer) -> None:
        super().__init__(server, server.home)
        self.bundles = server.folder / "bundles"
        self.bundles.mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        return {"COLUMNS": "", "HARMONY_HOME": str(self.home)}

    async def enroll(self, device: str = "pi-01", verb: str = "enroll", *words: str) -> Path:
        path = self.bundles / f"{device}-{verb}.bundle"
        ran = await self(
            "device", verb, device, "-o", str(path), "--reach", self.server.url, *words
        )
        assert (ran.code, ran.out) == (0, ""), ran.err
        assert_tells_no_secret(ran.err, decode(path.read_bytes()))
        return path


def wanted(generation: int, content: str, deployment: str = "web") -> Any:
    """One File, which no other deployment has."""
    value = manifest(generation, content, deployment=deployment)
    value["scores"][0]["name"] = deployment
    return value


def assert_tells_no_secret(words: str, bundle: Bundle) -> None:
    assert not any(line in words for line in bundle.credentials.split() if len(line) > 30)


def agent_of(server: GuardedServer, path: Path, state: Path, **more: Any) -> Agent:
    """An agent that has what a bundle gives it."""
    bundle = decode(path.read_bytes())
    agent = Agent(server, state, device=bundle.device, urls=list(bundle.servers), **more)
    state.mkdir(parents=True, exist_ok=True)
    for name, text in (("credentials", bundle.credentials), ("tls_ca", bundle.tls_ca or "")):
        place = state / path.name.replace(".bundle", f".{name}")
        place.write_text(text)
        agent.link[name] = str(place)
    return agent


@asynccontextmanager
async def joined(
    server: GuardedServer, tmp_path: Path
) -> AsyncIterator[tuple[Command, Agent, Plane]]:
    """pi-01, alive, with `web` and `other` as they were wanted before it came."""
    command = Command(server)
    assert (await command("server", "push")).code == 0
    path = await command.enroll()
    async with server.client() as client:
        plane = Plane(client)
        await plane.put(wanted(1, "a"))
        await plane.put(wanted(1, "b", "other"), "other")
        agent = agent_of(server, path, tmp_path / "state")
        async with agent.run():
            await plane.until(converged(1))
            await plane.until(converged(1), "other")
            yield command, agent, plane


async def test_what_it_forgot_is_told_though_its_key_left_no_trace(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    """It may not list a bucket; but the index has the name."""
    async with joined(guarded, tmp_path) as (_command, agent, plane):
        await plane.put(wanted(2, "c"))  # web is told last
        await plane.until(converged(2))
        kept = agent.disk
    async with guarded.client() as client:
        plane = Plane(client)
        await plane.js.purge_stream(
            "KV_desired-state", subject=f"$KV.desired-state.{agent.device}.other"
        )
        again = agent_of(
            guarded, guarded.folder / "bundles" / "pi-01-enroll.bundle", tmp_path / "new"
        )
        again.disk = kept
        async with again.run():
            status = await plane.until(said("Degraded", "LedgerLost"), "other")
            assert list(status["resources"]) == ["File/other"]
            await plane.until(converged(2))
            assert again.applied == []


async def test_it_works_whole(guarded: GuardedServer, tmp_path: Path) -> None:
    async with joined(guarded, tmp_path) as (command, agent, plane):
        await plane.put(wanted(2, "c"))
        await plane.until(converged(2))
        await plane.put(wanted(1, "n", "new"), "new")
        await plane.until(converged(1), "new")
        await plane.mark("DEL")
        await plane.until(said("Held", "DesiredStateMissing"))
        await plane.put(wanted(1, "stale"))
        await plane.until(said("Fenced", "StaleGeneration"))
        await plane.put(wanted(3, "d"))
        await plane.until(converged(3))
        await plane.put(manifest(2, deployment="other", removed=True), "other")
        await plane.until(lambda status: status["phase"] == "Removed", "other")
        assert agent.disk == {"/srv/web/f0": b"d", "/srv/new/f0": b"n"}
        answer = await plane.client.request(command_subject("pi-01", "ping"), b"", timeout=20)
        assert b"pi-01" in answer.data
        await plane.until_value("device-info", "info.pi-01", lambda info: info["device"] == "pi-01")
        await plane.until_value("device-heartbeat", "heartbeat.pi-01", lambda beat: beat["seq"] > 1)
        shown = await command("devices", "-o", "json")
        assert [one["device"] for one in shown.json] == ["pi-01"]
        await plane.js.purge_stream(kv_stream(DESIRED), subject="$KV.desired-state.pi-01.web")
        await plane.until(said("Held", "DesiredStateMissing"))


async def test_objects_of_the_stores_that_are_open_to_devices(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    async with joined(guarded, tmp_path) as (command, agent, plane):
        for bucket in (OBJECTS, "more"):
            store = await plane.js.create_object_store(bucket)
            await store.put("page", b"x" * 300_000)
        got = bytearray()

        async def keep(data: bytes) -> None:
            got.extend(data)

        await agent.control.fetch(OBJECTS, "page", 300_000, keep)
        assert got == b"x" * 300_000
        for bucket, name, reason in (
            ("more", "page", "ObjectDenied"),
            (OBJECTS, "none", "ObjectMissing"),
        ):
            with pytest.raises(Transient) as raised:
                await agent.control.fetch(bucket, name, 300_000, keep)
            assert raised.value.reason == reason
        assert (await command("server", "objects", "more", "-o", "json")).json == [OBJECTS, "more"]
        got.clear()
        for _ in range(20):
            try:
                await agent.control.fetch("more", "page", 300_000, keep)
                break
            except Transient:
                await eventually(agent.control.connected, "it did not connect again")
        assert got == b"x" * 300_000


async def test_buckets_made_anew_by_the_command_or_by_hand(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    async with joined(guarded, tmp_path) as (command, agent, plane):
        await plane.put(wanted(2, "put"))
        await plane.until(converged(2))
        await plane.delete_buckets(*BUCKETS)
        assert (await command("server", "push")).code == 0
        await plane.until(said("Held", "DesiredStateMissing"))
        await plane.until(said("Held", "DesiredStateMissing"), "other")
        await plane.put(wanted(3, "by the command"))
        await plane.put(wanted(1, "late", "late"), "late")
        await plane.until(converged(3))
        await plane.until(converged(1), "late")
        await plane.delete_buckets(DESIRED, ACTUAL)
        for bucket in (DESIRED, ACTUAL):
            config = KeyValueConfig(
                bucket, history=HISTORY.get(bucket, 1), storage=StorageType.FILE, direct=True
            )
            await plane.js.create_key_value(config)
        await plane.put(wanted(4, "by hand"))
        await plane.put(wanted(1, "later", "later"), "later")
        await plane.until(converged(4))
        await plane.until(converged(1), "later")
        await plane.until(said("Held", "DesiredStateMissing"), "late")
        assert agent.disk["/srv/web/f0"] == b"by hand"


async def test_a_restarted_server_and_one_that_lost_all(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    command = Command(guarded)
    assert (await command("server", "push")).code == 0
    path = await command.enroll()
    agent = agent_of(guarded, path, tmp_path / "state")
    async with agent.run():
        async with guarded.client() as client:
            await Plane(client).put(wanted(1, "a"))
            await Plane(client).until(converged(1))
        guarded.restart(kill=True)
        async with guarded.client() as client:
            await Plane(client).put(wanted(2, "b"))
            await Plane(client).until(converged(2))
        guarded.stop()
        guarded.wipe()
        guarded.start()
        assert (await command("server", "push")).code == 0
        async with guarded.client() as client:
            plane = Plane(client)
            await plane.until(said("Held", "DesiredStateMissing"))
            await agent.repairs()
            await plane.put(wanted(3, "c"))
            await plane.until(converged(3))


async def test_apply_and_logs_of_the_command(guarded: GuardedServer, tmp_path: Path) -> None:
    """The whole way by the command alone, with what it signs and what the bundle trusts."""
    async with joined(guarded, tmp_path) as (command, _agent, _plane):
        file = tmp_path / "cli.json"
        scores = [{"kind": "File", "name": "f", "path": "/srv/cli/f", "content": "x"}]
        file.write_text(json.dumps({"api": "harmony/v1", "deployment": "cli", "scores": scores}))
        ran = await command("apply", str(file), "--device", "pi-01", "--wait", "--timeout", "60s")
        assert ran.code == 0, ran.err
        assert (
            await command("delete", "cli", "--device", "pi-01", "--wait", "--timeout", "60s")
        ).code == 0


async def test_a_device_that_may_not_read_its_desired_state_says_so(
    guarded: GuardedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with joined(guarded, tmp_path) as (_command, agent, plane):
        publish = permissions.publish
        kept = lambda *args: [one for one in publish(*args) if kv_stream(DESIRED) not in one]  # noqa: E731
        monkeypatch.setattr(permissions, "publish", kept)
        authority = guarded.authority()
        authority.state = authority.state.model_copy(update={"stamp": authority.next_stamp()})
        await live.push(authority, guarded.context())
        lost = lambda: agent.engine.intake.lost  # noqa: E731
        await eventually(
            lambda: (found := lost()) is not None and found.reason == "Denied", "it doesn't say so"
        )
        assert agent.control.connected()
        monkeypatch.undo()
        authority.state = authority.state.model_copy(update={"stamp": authority.next_stamp() + 1})
        await live.push(authority, guarded.context())
        await eventually(lambda: lost() is None, "it doesn't say that it can read again")
        await plane.put(wanted(2, "read again"))
        await plane.until(converged(2))


# -- withdrawn, replaced


async def test_revoked_credentials_are_refused_at_once_and_for_good(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    async with joined(guarded, tmp_path) as (command, agent, plane):
        assert (await command("device", "revoke", "pi-01")).code == 0
        await eventually(lambda: not agent.control.connected(), "the connection was not cut")
        tries = agent.control.attempts
        await eventually(lambda: agent.control.attempts > tries + 3, "it does not try again")
        assert not agent.control.connected()
        await agent.repairs()  # what was accepted is kept up
        assert [info.name for info in await plane.js.consumers_info(kv_stream(DESIRED))] == []
        guarded.restart()
        tries = agent.control.attempts
        await eventually(lambda: agent.control.attempts > tries + 3, "it does not try again")
        assert not agent.control.connected()
        ran = await command("device", "revoke", "pi-01")
        assert (ran.code, "pi-01 has no credentials" in ran.err) == (2, True)
        again = await command.enroll()
    other = agent_of(guarded, again, tmp_path / "again")
    async with other.run():
        await eventually(other.control.connected, "enrolled again, it isn't let in")


async def test_rotation_keeps_both_until_the_new_ones_are_used(
    guarded: GuardedServer, tmp_path: Path
) -> None:
    async with joined(guarded, tmp_path) as (command, agent, _plane):
        path = await command.enroll("pi-01", "rotate")
        ran = await command("device", "finish", "pi-01")
        assert (ran.code, "hasn't connected" in ran.err) == (1, True)
        assert agent.control.connected()
        renewed = agent_of(guarded, path, tmp_path / "renewed")
        async with renewed.run():
            await eventually(renewed.control.connected, "the new credentials don't work")
            assert (await command("device", "finish", "pi-01", "--wait", "60s")).code == 0
            await eventually(
                lambda: not agent.control.connected(), "the old credentials still work"
            )
            assert renewed.control.connected()
            await command.enroll("pi-01", "rotate", "--at-once")
            await eventually(
                lambda: not renewed.control.connected(), "what was replaced at once still works"
            )


async def test_servers_that_are_away(guarded: GuardedServer) -> None:
    """What is decided stands, and is told later."""
    command = Command(guarded)
    await command.enroll()
    guarded.stop()
    ran = await command("device", "revoke", "pi-01")
    assert (ran.code, "decided" in ran.err, "harmony server push" in ran.err) == (4, True, True)
    await command.enroll("pi-02")
    guarded.start()
    assert (await command("server", "push")).code == 0
    async with guarded.client() as client:
        assert await client.jetstream().consumers_info(kv_stream(DESIRED)) == []
        for bucket in DEVICE_WRITES:
            assert not (
                await client.jetstream().stream_info(kv_stream(bucket))
            ).config.allow_rollup_hdrs


async def test_a_cluster_of_three(tmp_path: Path) -> None:
    """Told by one of them, all refuse; an answer to a device may come from one that is a little
    behind.
    """
    with ExitStack() as stack:
        cluster = GuardedCluster(tmp_path / "cluster")
        for server in cluster.servers:
            stack.enter_context(server)
        command = Command(cluster)
        await cluster.pushed(command)
        bundles = [await command.enroll(name) for name in ("pi-01", "pi-02", "pi-03")]
        async with AsyncExitStack() as running:
            agents = [agent_of(cluster, path, tmp_path / path.stem) for path in bundles]
            for agent, server in zip(agents, cluster.servers, strict=True):
                agent.urls = [server.url]
                await running.enter_async_context(agent.run())
            for agent in agents:
                await eventually(agent.control.connected, "it did not connect")
            assert (await command("device", "revoke", "pi-03")).code == 0
            await eventually(
                lambda: not agents[2].control.connected(), "another server goes on with it"
            )
            file = tmp_path / "web.json"
            scores = [{"kind": "File", "name": "f", "path": "/srv/cli/f", "content": "x"}]
            file.write_text(
                json.dumps({"api": "harmony/v1", "deployment": "cli", "scores": scores})
            )
            ran = await command(
                "apply", str(file), "-d", "pi-01", "-d", "pi-02", "--wait", "--timeout", "60s"
            )
            assert ran.code == 0, ran.err


# -- files


async def test_nothing_is_written_over(guarded: GuardedServer, tmp_path: Path) -> None:
    command = Command(guarded)
    before = {path: path.read_bytes() for path in guarded.home.rglob("*") if path.is_file()}
    ran = await command("server", "init", str(tmp_path / "second"), "--host", "localhost")
    assert (ran.code, "cannot make a second authority" in ran.err) == (5, True)
    assert {path: path.read_bytes() for path in guarded.home.rglob("*") if path.is_file()} == before
    assert not (tmp_path / "second").exists()
    await command.enroll()
    assert (await command("device", "enroll", "pi-01", "-o", str(tmp_path / "x"))).code == 5
    for path in (guarded.home / "authority").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    assert stat.S_IMODE((guarded.home / "authority").stat().st_mode) == 0o700
    assert stat.S_IMODE((command.bundles / "pi-01-enroll.bundle").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "a b"],
        ["--host", "a", "--host", "b"],
        ["--host", "a", "--name", "A"],
        ["--host", "a", "--at", "x"],
    ],
)
async def test_an_init_that_makes_no_sense(
    tmp_path: Path, words: list[str], resting: GuardedServer
) -> None:
    command = Command(resting)
    assert (await command("server", "init", str(tmp_path / "new"), *words)).code == 2


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"device": "PI"}, "device", "InvalidName"),
    ({"servers": []}, "servers", "TooFew"),
    ({"servers": ["http://user:hunter2@x"]}, "servers[0]", "InvalidServer"),
    ({"credentials": "hunter2"}, "credentials", "InvalidCredentials"),
    ({"tls_ca": "hunter2"}, "tls_ca", "InvalidCertificate"),
    ({"trusted_keys": ["hunter2"]}, "trusted_keys[0]", "InvalidKey"),
    ({"roots": ["/srv/../etc"]}, "roots[0]", "PathNotNormal"),
    ({"hunter2": 1}, "hunter2", "UnknownField"),
    ({"profile": "root"}, "profile", "NotAllowed"),
]


@pytest.mark.parametrize(("change", "field", "code"), BAD, ids=[code for _, _, code in BAD])
async def test_a_bundle_that_is_none(
    change: dict[str, Any], field: str, code: str, module_bundle: dict[str, Any]
) -> None:
    with pytest.raises(InvalidBundle) as raised:
        decode(canonical(module_bundle | change))
    assert [(error.field, error.code) for error in raised.value.errors] == [(field, code)]
    assert "hunter2" not in str(raised.value) or "hunter2" in change


@pytest.fixture(scope="module")
def resting(tmp_path_factory: pytest.TempPathFactory) -> GuardedServer:
    """One that nobody starts: for what needs no more than files."""
    server = GuardedServer(tmp_path_factory.mktemp("files") / "guarded")
    server.port = 4222
    return server


@pytest.fixture(scope="module")
def module_bundle(resting: GuardedServer) -> dict[str, Any]:
    return resting.bundle("pi-01", labels={"site": "home"}).wire()
