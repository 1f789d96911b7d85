"""A real agent that goes back from a generation by itself: killed with SIGKILL at random moments, with no server, once."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent import DEVICE, LINEAGE, Plane, converged, said
from tests.integration.test_sigkill import CONFIG, zygote
from tests.natsserver import NatsServer
from tests.scale import scaled

KILLS = scaled(12, 100)
SPAN = 5


def wanted(root: Path, generation: int, *more: dict[str, Any], **fields: Any) -> dict[str, Any]:
    one = {"kind": "File", "name": "one", "path": f"{root}/one", "content": str(generation)}
    value = {"api": "harmony/v1", "device": DEVICE, "deployment": "web", "lineage": LINEAGE}
    return {**value, "generation": generation, "scores": [one, *more], **fields}


def content(root: Path) -> dict[str, str]:
    """Files by name; what is not yet renamed into its place is left out."""
    found = {}
    for path in root.iterdir():
        try:
            if not path.name.startswith("."):
                found[path.name] = path.read_text()
        except FileNotFoundError:
            continue
    return found


async def until(root: Path, files: dict[str, str], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while content(root) != files:
            await asyncio.sleep(0.02)


@pytest.mark.timeout(240)
async def test_it_goes_back_whenever_it_is_killed(nats_server: NatsServer, tmp_path: Path) -> None:
    seed = int(os.environ.get("HARMONY_SEED") or random.SystemRandom().randrange(10**9))
    print(f"HARMONY_SEED={seed}")
    chance, root, state = random.Random(seed), tmp_path / "root", tmp_path / "state"
    root.mkdir()
    config, log = tmp_path / "agent.toml", tmp_path / "log"
    config.write_text(CONFIG.format(device=DEVICE, state=state, url=nats_server.url, root=root))
    gone = {"kind": "File", "name": "gone", "path": f"{root}/gone", "content": "back"}
    bad = {"kind": "File", "name": "bad", "path": f"{root}/no/such/folder", "content": "secret"}
    good, tried = {"one": "1", "gone": "back"}, {"one": "2"}
    async with zygote(config, log) as agents:
        async with nats_server.client() as client:
            plane = Plane(client)
            await plane.make_buckets()
            await plane.put(wanted(root, 1, gone))
            await agents.start()
            await plane.until(converged(1))
            await plane.put(wanted(root, 2, bad, revert_after=f"{SPAN}s"))
            await until(root, tried, 40)
        nats_server.stop()
        for _ in range(KILLS):
            await agents.end(signal.SIGKILL)
            await agents.start()
            await asyncio.sleep(chance.uniform(0.05, 1.0))
        await until(root, good, 60)
        await agents.end(signal.SIGKILL)
        await agents.start()
        nats_server.start()
        async with nats_server.client() as client:
            plane = Plane(client)
            status = await plane.until(said("Rejected", "Reverted"))
            assert (status["generation"], status["rejected"]["generation"]) == (1, 2)
            assert "File/bad" in status["message"]
            assert "secret" not in str(status)
            await plane.put(wanted(root, 2, bad, revert_after=f"{SPAN}s"))
            await asyncio.sleep(SPAN + 2)
            assert content(root) == good
            assert log.read_text().count("is enforced again") <= KILLS + 4
            await plane.put(wanted(root, 3, gone))
            await plane.until(converged(3))
        await agents.end(signal.SIGTERM)
    assert '"secret"' not in log.read_text()
