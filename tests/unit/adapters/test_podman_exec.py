"""An exec probe that hangs: podman can't end it, so that it must not be joined by another one each
period.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harmony_agent.adapters.podman.client import Podman
from harmony_agent.core.errors import Transient

IDENT = "a" * 64


class Service:
    """A podman service of which only `exec` is asked. While `hang`, what is started never ends."""

    def __init__(self) -> None:
        self.sessions: list[str] = []
        self.running: set[str] = set()
        self.hang = False

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, path = head.split()[:2]
        answer = self._answer(method, path.partition("/libpod")[2])
        if answer is None:
            await reader.read()  # until the client hangs up
        else:
            status, body = answer
            writer.write(
                f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
            )
            await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str) -> tuple[int, bytes] | None:
        if path == "/_ping":
            return 200, b"OK"
        if path.startswith("/containers/"):
            self.sessions.append(f"s{len(self.sessions)}")
            return 201, json.dumps({"Id": self.sessions[-1]}).encode()
        session, verb = path.split("/")[2:4]
        if verb == "start":
            self.running |= {session} if self.hang else set()
            return None if self.hang else (200, b"")
        if session not in self.sessions:
            return 404, b'{"message":"no such exec session"}'
        return 200, json.dumps({"Running": session in self.running, "ExitCode": 0}).encode()


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    made = Service()
    async with await asyncio.start_unix_server(made.connected, tmp_path / "podman.sock"):
        yield made


@pytest.fixture
def podman(tmp_path: Path) -> Podman:
    return Podman(str(tmp_path / "podman.sock"))


async def reason(podman: Podman, *argv: str) -> str:
    with pytest.raises(Transient) as caught:
        await podman.exec(IDENT, argv, 10.0)
    return caught.value.reason


async def hang(service: Service, podman: Podman, *argv: str) -> None:
    """Run what hangs, and give it up once it does."""
    service.hang = True
    probe = asyncio.create_task(podman.exec(IDENT, argv, 60.0))
    async with asyncio.timeout(30):
        while not service.running:
            await asyncio.sleep(0.01)
    probe.cancel()
    await asyncio.wait([probe])
    service.hang = False


async def test_what_hangs_is_run_once(service: Service, podman: Podman) -> None:
    await hang(service, podman, "look")
    for _ in range(5):
        assert await reason(podman, "look") == "ProbeHangs"
    assert service.sessions == ["s0"]
    assert await podman.exec(IDENT, ["other"], 10.0) == 0


@pytest.mark.parametrize("forgotten", [False, True])
async def test_it_is_run_again_once_the_first_is_over(
    service: Service, podman: Podman, forgotten: bool
) -> None:
    await hang(service, podman, "look")
    if forgotten:
        service.sessions[0] = "gone"
    else:
        service.running.clear()
    assert await podman.exec(IDENT, ["look"], 10.0) == 0
    assert podman._unended == {}
