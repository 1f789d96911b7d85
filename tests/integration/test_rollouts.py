"""Rollouts of a roster against a real server, with devices that answer by themselves: waves, failures,
the way back, what an operator sees and steers.
"""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harmony_fleet.context import Context
from harmony_fleet.nats.kv import Store
from scores.manifest import WireManifest
from tests.integration.operator import Operator
from tests.integration.simfleet import SimFleet
from tests.integration.test_fleet import Site
from tests.natsserver import NatsServer
from tests.scale import scaled

NAMES = tuple(f"pi-0{number}" for number in range(1, 6))
POLICY = ("canary=1", "max_unavailable=2", "min_ready=0s", "wave_timeout=3s")


class Picky(SimFleet):
    """Devices of which some never have `bad` content converged."""

    bad: frozenset[str] = frozenset()
    at: frozenset[str] = frozenset(NAMES)

    async def say(self, wire: WireManifest, phase: Any = None, **resources: Any) -> None:
        contents = {getattr(score, "content", None) for score in wire.scores}
        if phase is None and wire.device in self.at and contents & self.bad:
            phase = "Degraded"
        await super().say(wire, phase, **resources)


class Waves(Site):
    fleet: Picky

    async def write(self, content: str) -> None:
        """The deployment with this content, at the next generation of the roster."""
        path = self.operator.folder / "web.json"
        file = {"kind": "File", "name": "motd", "path": "/srv/motd", "content": content}
        path.write_text(json.dumps([file]))
        await self.change("deployment", "set", "web", "--file", str(path))

    async def policy(self, *fields: str) -> None:
        words = [word for field in fields for word in ("--rollout", field)]
        await self.change("deployment", "set", "web", *words)

    async def contents(self) -> list[str]:
        """What is desired of each device, in their order."""
        return [(await self.wire(name)).scores[0].wire()["content"] for name in NAMES]

    async def rollout(self, code: int = 0) -> dict[str, Any]:
        found: dict[str, Any] = (
            await self("rollout", "status", "web", "-o", "json", code=code)
        ).json
        return found


@pytest.fixture
async def site(nats_server: NatsServer, tmp_path: Path) -> AsyncIterator[Waves]:
    operator = Operator(nats_server, tmp_path / "operator")
    async with nats_server.client() as client:
        async with Store(Context((nats_server.url,), None, None, tmp_path)) as store:
            await store.ensure_buckets()
        async with Picky(client, NAMES) as fleet:
            made = Waves(operator, fleet)
            await made("fleet", "init")
            await made.change("device", "add", *NAMES, "--class", "web")
            path = made.operator.folder / "web.json"
            path.write_text(
                '[{"kind": "File", "name": "motd", "path": "/srv/motd", "content": "1"}]'
            )
            await made.change("deployment", "add", "web", "--file", str(path))
            await made("fleet", "apply", "--wait", "--timeout", "20s")
            yield made


async def test_a_good_change_reaches_all_in_waves(site: Waves) -> None:
    await site.policy(*POLICY)
    await site.write("2")
    planned = (await site("fleet", "plan", "-o", "json")).json
    assert [item["device"] for item in planned["writes"]] == ["pi-01"]
    ran = await site("fleet", "apply", "--wait")
    assert "Succeeded, wave 3 of 3: 5 of 5 succeeded" in ran.err
    assert await site.contents() == ["2"] * 5
    assert await site.findings() == set()
    told = await site.rollout()
    assert [item["wave"] for item in told["targets"]] == [1, 2, 2, 3, 3]
    again = (await site("fleet", "apply", "-o", "json")).json
    assert again["writes"] == []


async def test_a_bad_change_stops_at_the_canary(site: Waves) -> None:
    await site.policy(*POLICY)
    site.fleet.bad = frozenset({"2"})
    await site.write("2")
    ran = await site("fleet", "apply", "--wait", code=1)
    assert "harmony rollout undo web" in ran.err
    assert await site.contents() == ["2", "1", "1", "1", "1"]
    assert ("rollout-stopped", "None/web", "") in await site.findings()
    told = await site.rollout(code=1)
    assert (told["phase"], told["reason"]) == ("Paused", "Degraded")
    shown = await site("rollout", "status", "web", code=1)
    assert "pi-01" in shown.out
    assert "1 failed" in shown.out
    await site("fleet", "apply", "--no-wait", code=1)
    assert await site.contents() == ["2", "1", "1", "1", "1"]
    await site.write("3")
    await site("fleet", "apply", "--wait")
    assert await site.contents() == ["3"] * 5
    past = (await site("rollout", "history", "web", "-o", "json")).json["past"]
    assert [(one["phase"], one["failed"]) for one in past] == [("Replaced", 1)]
    assert "Replaced" in (await site("rollout", "history", "web")).out


async def test_a_bad_change_goes_back_by_itself(site: Waves) -> None:
    await site.policy(*POLICY, "on_failure=rollback")
    site.fleet.bad, site.fleet.at = frozenset({"2"}), frozenset({"pi-03"})
    await site.write("2")
    ran = await site("fleet", "apply", "--wait", code=1)
    assert "RolledBack Degraded" in ran.err
    assert await site.contents() == ["1"] * 5
    generations = [(await site.wire(name)).generation for name in NAMES]
    assert generations == [3, 3, 3, 1, 1]
    await site("fleet", "apply", "--no-wait", code=1)
    assert await site.contents() == ["1"] * 5
    site.fleet.bad = frozenset()
    await site("rollout", "resume", "web")
    assert await site.contents() == ["2"] * 5
    await site("rollout", "undo", "web", code=1)
    assert await site.contents() == ["1"] * 5


async def test_steered_by_hand_and_carried_on_by_a_controller(site: Waves) -> None:
    await site.policy(*POLICY)
    await site.write("2")
    ran = await site("fleet", "apply", "--no-wait")
    assert "harmony rollout watch web" in ran.err
    await site("rollout", "pause", "web")
    refused = await site("rollout", "pause", "web", "-o", "json", code=2)
    assert refused.error["code"] == "RolloutPhase"
    assert (await site.rollout(code=1))["reason"] == "Asked"
    assert ("rollout-stopped", "None/web", "") in await site.findings()
    await site("rollout", "promote", "web")
    assert await site.contents() == ["2"] * 5
    await site.policy("max_unavailable=5")
    await site.write("3")
    process = await site.operator.process("fleet", "controller", "--interval", "1s")
    try:
        async with asyncio.timeout(60):
            while (
                await site.contents() != ["3"] * 5 or (await site.rollout())["phase"] != "Succeeded"
            ):
                await asyncio.sleep(0.3)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
        assert process.returncode == 0


async def test_a_silent_device_holds_nothing_up_and_gets_the_newest_later(site: Waves) -> None:
    site.fleet["pi-02"].plugged = False
    await site.policy(*POLICY)
    await asyncio.sleep(31)  # from then on it is silent
    await site.write("2")
    await site("fleet", "apply", "--no-wait")
    assert await site.contents() == ["2", "1", "1", "1", "1"]
    await site("fleet", "apply", "--wait")
    assert await site.contents() == ["2"] * 5
    told = await site.rollout()
    assert {one["device"]: one.get("state") for one in told["targets"]} == {
        **dict.fromkeys(NAMES, "succeeded"),
        "pi-02": "away",
    }


@pytest.mark.parametrize(
    ("field", "code"),
    [
        ("canary=0", "OutOfRange"),
        ("max_unavailable=0%", "InvalidBudget"),
        ("wave_timeout=soon", "InvalidDuration"),
        ("window=01:00-05:00", "InvalidWindow"),
        ("on_failure=panic", "NotAllowed"),
        ("typo=1", "UnknownField"),
    ],
)
async def test_a_policy_that_is_none(site: Waves, field: str, code: str) -> None:
    ran = await site("fleet", "deployment", "set", "web", "--rollout", field, "-o", "json", code=2)
    assert code in {error["code"] for error in ran.error["errors"]}, ran.err


async def test_what_goes_back_is_the_home_s_own_word(site: Waves) -> None:
    """Who owns NATS could put another manifest where the record says what stood before."""
    await site("fleet", "key", "new")
    await site("fleet", "apply", "--wait", "--timeout", "20s")
    await site.policy(*POLICY)
    await site.write("2")
    await site("fleet", "apply", "--wait")
    [score] = (await site.wire("pi-01")).scores
    evil = score.model_copy(update={"content": "evil"})
    there = (await site.wire("pi-01")).model_copy(update={"generation": 9, "scores": [evil]})
    await site.put("desired-state", "pi-01.web", there.canonical())
    record = json.loads(await site.raw("task-runs", "rollout.web") or b"")
    info = await site.fleet.client.jetstream().stream_info("KV_desired-state")
    record["targets"][0] |= {"before": info.state.last_seq, "state": "returning"}
    record["phase"] = "RollingBack"
    await site.put("task-runs", "rollout.web", json.dumps(record).encode())
    refused = await site("rollout", "undo", "web", "-o", "json", code=2)
    assert refused.error["code"] == "NotFound"
    await site("fleet", "apply", "--wait")
    assert await site.contents() == ["2"] * 5


async def test_another_manifest_than_what_stood_is_never_signed(site: Waves) -> None:
    await site("fleet", "key", "new")
    await site("fleet", "apply", "--wait", "--timeout", "20s")
    await site.policy(*POLICY)
    site.fleet.bad = frozenset({"2"})
    await site.write("2")
    await site("fleet", "apply", "--wait", code=1)
    wire = await site.wire("pi-04")
    evil = wire.scores[0].model_copy(update={"content": "evil"})
    there = wire.model_copy(update={"generation": wire.generation + 1, "scores": [evil]})
    await site.put("desired-state", "pi-04.web", there.canonical())
    await site("fleet", "apply", "--no-wait", code=1)
    assert await site.contents() == ["2", "1", "1", "evil", "1"]
    assert (await site.wire("pi-04")).generation == there.generation
    assert ("projection-differs", "pi-04/web", "") in await site.findings()
    await site.write("3")
    await site("fleet", "apply", "--wait")
    assert await site.contents() == ["3"] * 5


async def test_killed_at_any_step(site: Waves) -> None:
    """Controllers, each killed after another while."""
    await site.policy("canary=1", "max_unavailable=4", "min_ready=0s", "wave_timeout=30s")
    rounds = scaled(1, 10)
    for number in range(2, 2 + rounds):
        await site.write(str(number))
        for pause in (0.4, 0.8, 1.2, 1.6, 2.4):
            process = await site.operator.process("fleet", "controller", "--interval", "1s")
            await asyncio.sleep(pause)
            process.kill()
            await process.communicate()
        await site("fleet", "apply", "--wait")
        assert await site.contents() == [str(number)] * 5
    assert [(await site.wire(name)).generation for name in NAMES] == [1 + rounds] * 5
