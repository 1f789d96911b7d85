"""The updater's socket from the agent's side: each way in which an answer can be missing or odd."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harmony_agent.adapters.updater import SocketUpdater
from harmony_agent.core.errors import Transient
from harmony_agent.topology.updater import Ask, Offer, UpdaterRefused

ASK = Ask("a1", "r1", "pi-01", "2026-11-29T18:00:00Z")
STATUS = {"attemptId": "a1", "runUid": "r1", "deviceId": "pi-01", "phase": "preflight"}


@asynccontextmanager
async def answering(
    path: Path, answer: Any, asked: list[Any] | None = None
) -> AsyncIterator[SocketUpdater]:
    """A socket on which one fixed answer is given; bytes as they are, else JSON and a line's
    end.
    """

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = await reader.readline()
        if asked is not None:
            asked.append(json.loads(line))
        writer.write(
            answer if isinstance(answer, bytes) else json.dumps({"v": 1, **answer}).encode() + b"\n"
        )
        writer.close()

    server = await asyncio.start_unix_server(connected, path)
    async with server:
        yield SocketUpdater(str(path))


async def test_a_request_has_exactly_its_four_fields(tmp_path: Path):
    asked: list[Any] = []
    async with answering(
        tmp_path / "s", {"ok": True, "status": {**STATUS, "startedAt": ASK.expires_at}}, asked
    ) as updater:
        attempt = await updater.request(ASK)
    assert (attempt.detail.phase, attempt.durable, attempt.ended) == ("preflight", True, False)
    assert asked == [
        {
            "v": 1,
            "op": "AptFullUpgradeV1",
            "request": {
                "attemptId": "a1",
                "runUid": "r1",
                "deviceId": "pi-01",
                "expiresAt": "2026-11-29T18:00:00.000Z",
            },
        }
    ]


async def test_blocked_that_did_not_start_is_not_durable(tmp_path: Path):
    async with answering(
        tmp_path / "s", {"ok": True, "status": {**STATUS, "phase": "blocked"}}
    ) as updater:
        assert not (await updater.request(ASK)).durable


async def test_capabilities_and_unknown_attempts(tmp_path: Path):
    offer = {"ok": True, "status": {"protocol": 1, "operations": ["AptFullUpgradeV1"]}}
    async with answering(tmp_path / "a", offer) as updater:
        assert await updater.capabilities() == Offer(1, ("AptFullUpgradeV1",))
    unknown = {"ok": False, "error": {"code": "unknown-attempt", "message": "no"}}
    async with answering(tmp_path / "b", unknown) as updater:
        assert await updater.status("a1") is None


async def test_a_refusal_is_told_by_its_code(tmp_path: Path):
    refusal = {"ok": False, "error": {"code": "wrong-device", "message": "not me"}}
    async with answering(tmp_path / "s", refusal) as updater:
        for call in (updater.request(ASK), updater.status("a1")):
            with pytest.raises(UpdaterRefused) as caught:
                await call
            assert caught.value.code == "wrong-device"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "hung up without an answer"),
        (b'{"v":1,', "hung up without an answer"),
        (b"rubbish\n", "another version"),
        (b'{"v":2,"ok":true}\n', "another version"),
        ({"ok": True, "status": {"protocol": 1, "operations": []}}, "something else than a status"),
    ],
)
async def test_what_is_no_answer_is_unavailable(tmp_path: Path, answer: Any, said: str):
    async with answering(tmp_path / "s", answer) as updater:
        with pytest.raises(Transient, match=said) as caught:
            await updater.status("a1")
    assert (caught.value.reason, caught.value.phase) == ("UpdaterUnavailable", "Blocked")


async def test_nobody_there_says_what_to_do(tmp_path: Path):
    with pytest.raises(Transient, match="harmony-updater installed"):
        await SocketUpdater(str(tmp_path / "none")).capabilities()
