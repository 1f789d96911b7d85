"""More devices than a stream has consumers for, by the agent's own adapters, each with its device's
credentials.

Against one server as `harmony server init` makes it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from harmony_fleet.nats.kv import Store
from scores.jetstream import kv_stream
from scores.keys import DESIRED
from tests.integration.test_enroll import Command
from tests.natsauthority import GuardedServer
from tests.scale import scaled

COUNT = int(os.environ.get("HARMONY_CROWD", scaled(1050, 2000)))
PROCESSES = 4
POLL = 60.0
"""Seconds within which a device finds what nobody told it of, as the many reconnect at once."""
SECONDS = 4 * POLL
"""For whatever is waited for, on a machine that has other work."""


class Seen:
    """What the crowd told: which value each has, when it came, and how many read desired state."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], bytes] = {}
        self.at: dict[tuple[str, str], float] = {}
        self.ready: dict[int, int] = {}

    async def read(self, number: int, stream: asyncio.StreamReader) -> None:
        """Take in one process's lines."""
        while line := await stream.readline():
            told = json.loads(line)
            if "ready" in told:
                self.ready[number] = told["ready"]
            else:
                key = (told["device"], told["deployment"])
                self.values[key], self.at[key] = base64.b64decode(told["data"]), told["at"]

    async def until_ready(self) -> None:
        """All of them have read what there is."""
        await until(lambda: sum(self.ready.values()) == COUNT, f"not ready: {self.ready}")

    async def until_all(self, deployment: str, value: bytes, devices: Iterable[str]) -> float:
        """All have the value; when the last one got it."""
        keys = [(device, deployment) for device in devices]
        await until(
            lambda: all(self.values.get(key) == value for key in keys),
            lambda: (
                f"{sum(self.values.get(key) != value for key in keys)} devices haven't got {value!r}"
            ),
        )
        return max(self.at[key] for key in keys)


async def until(condition: object, why: object) -> None:
    """Wait for it."""
    assert callable(condition)
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, why() if callable(why) else why
        await asyncio.sleep(0.05)


@asynccontextmanager
async def crowd(server: GuardedServer, files: list[Path], seen: Seen) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for number in range(PROCESSES):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *(
                    "-m",
                    "tests.integration.crowd",
                    server.url,
                    str(server.home / "authority" / "ca.pem"),
                    str(POLL),
                ),
                *map(str, files[number::PROCESSES]),
                stdout=asyncio.subprocess.PIPE,
                cwd=Path(__file__).parents[2],
            )
            stack.push_async_callback(end, process)
            assert process.stdout is not None
            reading = asyncio.create_task(seen.read(number, process.stdout))
            stack.callback(reading.cancel)
        yield


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


def issue(server: GuardedServer, devices: list[str], folder: Path) -> list[Path]:
    """Credentials as `device enroll` gives them, without a write of the authority's state for
    each.
    """
    folder.mkdir()
    files = [folder / f"{device}.creds" for device in devices]
    authority = server.authority()
    for device, file in zip(devices, files, strict=True):
        file.write_text(authority.device(device)[1])
    return files


async def put_all(
    store: Store, deployment: str, value: bytes, devices: list[str], revision: int | None = None
) -> None:
    gate = asyncio.Semaphore(64)

    async def one(device: str) -> None:
        async with gate:
            key = f"{device}.{deployment}"
            now = (await store.get(DESIRED, key)).revision if revision is None else revision
            await store.put(DESIRED, key, value, now)

    await asyncio.gather(*map(one, devices))


@pytest.mark.timeout(900)
async def test_more_devices_than_consumers(tmp_path: Path) -> None:
    """Each finds all that was written before it came, each sees a change, also after the server was
    restarted.
    """
    devices = [f"pi-{number:04}" for number in range(COUNT)]
    with GuardedServer(tmp_path) as server:
        assert (await Command(server)("server", "push")).code == 0
        seen = Seen()
        async with Store(server.context(), 30) as store:
            await put_all(store, "web", b"before", devices, 0)
            await put_all(store, "db", b"before", devices[:50], 0)
            async with crowd(server, issue(server, devices, tmp_path / "creds"), seen):
                await seen.until_ready()
                await seen.until_all("web", b"before", devices)
                await seen.until_all("db", b"before", devices[:50])
                some = devices[:: COUNT // 60]
                began = time.monotonic()
                await put_all(store, "web", b"after", some)
                print(
                    f"\n{len(some)} of {COUNT}: {await seen.until_all('web', b'after', some) - began:.2f} s"
                )
                began = time.monotonic()
                await asyncio.to_thread(server.restart)
                await put_when_back(server, "new", b"restarted", some)
                done = await seen.until_all("new", b"restarted", some)
                print(
                    f"restarted: {done - began:.2f} s from the start, until the last of them was back and had it"
                )
        async with server.client() as client:
            assert (
                await client.jetstream().stream_info(kv_stream(DESIRED))
            ).state.consumer_count == 0
        for verb in ("status", "devices"):
            ran = await Command(server)(verb, "-o", "json")
            assert ran.code in (0, 1), ran.err


async def put_when_back(
    server: GuardedServer, deployment: str, value: bytes, devices: list[str]
) -> None:
    async with Store(server.context(), 30) as store:
        await put_all(store, deployment, value, devices, 0)
