"""`harmony pause` and `resume` against a real agent and a real server."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

from harmony_fleet.manifests import signing_keys
from scores.signatures import read_key
from tests.integration.agent import Agent, Plane, converged, eventually, live, manifest, said
from tests.integration.operator import Operator
from tests.keys import trust
from tests.natsserver import NatsServer

F0 = "/srv/web/f0"


async def test_paused_it_is_told_and_left_and_repaired_in_its_time(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    operator = Operator(nats_server, tmp_path / "home")
    async with live(nats_server, tmp_path / "state") as (agent, plane):
        await plane.put(manifest(1, "wanted"))
        await plane.until(converged(1))
        ran = await operator("pause", "pi-01/web", "--for", "6s")
        began = time.monotonic()
        assert (ran.code, ran.out) == (0, "")
        assert "pi-01/web stays as it is until " in ran.err
        agent.disk[F0] = b"by hand"
        shown = await plane.until(lambda status: status["phase"] == "Degraded")
        assert shown["resources"]["File/f0"]["reason"] == "DriftReported"
        assert shown["paused"]["scope"] == "deployment"
        assert "paused until" in (await operator("status")).out
        await _shown_in_devices(operator, "web is paused until")
        assert agent.disk[F0] == b"by hand"
        await eventually(lambda: agent.disk[F0] == b"wanted", "it was not repaired", 20)
        assert time.monotonic() - began >= 5.5
        assert "paused" not in await plane.until(converged(1))


async def _shown_in_devices(operator: Operator, words: str) -> None:
    for _ in range(200):
        if words in (shown := (await operator("devices")).out):
            return
        await asyncio.sleep(0.05)
    raise AssertionError(shown)


async def test_over_a_restart_a_manifest_waits_and_resume_ends_it(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    operator = Operator(nats_server, tmp_path / "home")
    async with nats_server.client() as client:
        plane, agent = Plane(client), Agent(nats_server, tmp_path / "state")
        await plane.make_buckets()
        async with agent.run():
            await plane.put(manifest(1, "one"))
            await plane.until(converged(1))
            assert (await operator("pause", "pi-01", "--for", "1h")).code == 0
        async with agent.run():
            await plane.put(manifest(2, "two"))
            held = await plane.until(said("Held", "Paused"))
            assert (held["generation"], held["rejected"]["generation"]) == (1, 2)
            assert held["paused"]["scope"] == "device"
            await _shown_in_devices(operator, "all of it is paused until")
            one = await operator("resume", "pi-01/web", "-o", "json")
            assert (one.code, one.json["ended"]) == (1, [])
            assert agent.disk[F0] == b"one"
            assert (await operator("resume", "pi-01")).code == 0
            await plane.until(converged(2))
            assert agent.disk[F0] == b"two"


async def test_only_who_has_the_keys_pauses_a_device_that_believes_them(
    nats_server: NatsServer, tmp_path: Path
) -> None:
    stranger, ours = (
        Operator(nats_server, tmp_path / "other"),
        Operator(nats_server, tmp_path / "home"),
    )
    key = signing_keys.new(ours.home)
    believed = replace(trust(), keys={key.id: read_key(key.spelt)})
    async with live(nats_server, tmp_path / "state", trust=believed) as (agent, _plane):
        for verb in (("pause", "pi-01", "--for", "1h"), ("resume", "pi-01")):
            refused = await stranger(*verb, "-o", "json")
            assert (refused.code, refused.error["code"]) == (1, "SignatureMissing")
        assert agent.engine.state.pauses.shown() == {}
        assert (await ours("pause", "pi-01", "--for", "1h")).code == 0
        assert list(agent.engine.state.pauses.shown()) == ["*"]
        assert (await ours("resume", "pi-01")).code == 0


async def test_what_cannot_be_paused_is_told(nats_server: NatsServer, tmp_path: Path) -> None:
    operator = Operator(nats_server, tmp_path / "home")
    async with live(nats_server, tmp_path / "state"):
        unknown = await operator("pause", "pi-01/nothing", "--for", "1h", "-o", "json")
        assert (unknown.code, unknown.error["code"]) == (1, "unknown-deployment")
        silent = await operator("pause", "pi-09", "--for", "1h", "-o", "json")
        assert (silent.code, silent.error["code"]) == (4, "DeviceSilent")
        for words in (("pi-01", "--for", "8d"), ("pi-01", "--for", "soon"), ("Pi/", "--for", "1h")):
            assert (await operator("pause", *words)).code == 2
