"""What the benchmarks run: a nats-server, agents and floors as processes of their own, and the
control plane's hand.

Every process ends with this one, also when it is killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import nats.errors
from nats.aio.client import Client
from nats.js.api import KeyValueConfig, StorageType
from nats.js.client import JetStreamContext

from scores.canonical import canonical
from scores.keys import ACTUAL, BUCKETS, DESIRED, HISTORY
from tests.natsserver import NatsServer, _ends_with_parent

LINEAGE: Final = "7b0e0000-0000-4000-8000-000000000001"
ROOT: Final = Path(__file__).parents[2]
_CONFIG: Final = """
[agent]
device_id = "{device}"
state_dir = "{state}"
kinds = ["File"]
[nats]
servers = ["{url}"]
[files]
roots = ["{root}"]
"""


def spawn(words: list[str], **options: Any) -> subprocess.Popen[Any]:
    """A Python process of this environment, which ends with this one."""
    return subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT,
        preexec_fn=_ends_with_parent(),  # noqa: PLW1509  # one system call, no lock
        **options,
    )


def end(process: subprocess.Popen[Any]) -> None:
    """In good order, else at once."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Device:
    """One agent's folder and configuration; its kind is File."""

    def __init__(self, folder: Path, name: str, url: str) -> None:
        self.name, self.state, self.root = name, folder / name / "state", folder / name / "root"
        self.root.mkdir(parents=True)
        self.config = folder / name / "agent.toml"
        self.config.write_text(
            _CONFIG.format(device=name, state=self.state, url=url, root=self.root)
        )
        self.log = folder / name / "log"

    @contextmanager
    def agent(self, environ: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[Any]]:
        """The agent as the service manager starts it."""
        with self.log.open("ab") as log:
            process = spawn(
                self.command()[1:],
                stdout=log,
                stderr=log,
                env={**os.environ, **(environ or {})},
            )
        try:
            yield process
        finally:
            end(process)

    def command(self) -> list[str]:
        """The command line of the agent."""
        return [
            sys.executable,
            *("-m", "harmony_agent.cli", "run", "--config", str(self.config)),
        ]

    def manifest(
        self, deployment: str, generation: int, contents: Mapping[str, str], **more: Any
    ) -> bytes:
        """A manifest of one File for each of `contents`, path below the root -> content."""
        scores = [
            {
                "kind": "File",
                "name": name.replace("/", "."),
                "path": f"{self.root}/{name}",
                "content": content,
            }
            for name, content in contents.items()
        ]
        about = {
            "api": "harmony/v1",
            "device": self.name,
            "deployment": deployment,
            "lineage": LINEAGE,
        }
        return canonical({**about, "generation": generation, "scores": scores, **more})


class Plane:
    """The control plane: puts desired state, and sees actual state the moment that a watcher is
    told of it.
    """

    def __init__(self, client: Client) -> None:
        self.js: JetStreamContext = client.jetstream()

    async def make_buckets(self, *more: str) -> None:
        for bucket in (*BUCKETS, *more):
            history = HISTORY.get(bucket, 1)
            await self.js.create_key_value(
                KeyValueConfig(bucket=bucket, history=history, storage=StorageType.FILE)
            )

    async def follow(self, bucket: str = ACTUAL) -> asyncio.Queue[tuple[float, str, bytes]]:
        """When each entry came, its key, its value."""
        queue: asyncio.Queue[tuple[float, str, bytes]] = asyncio.Queue()
        watcher = await (await self.js.key_value(bucket)).watchall()

        async def read() -> None:
            while True:
                try:
                    entry = await watcher.updates(timeout=60)
                except nats.errors.TimeoutError:  # nothing came for so long
                    continue
                if entry is not None:
                    queue.put_nowait((time.perf_counter(), entry.key, entry.value or b""))

        self._reader = asyncio.create_task(read())
        return queue

    async def put(self, bucket: str, key: str, data: bytes) -> None:
        await (await self.js.key_value(bucket)).put(key, data)


class Follower:
    """Puts, and waits for the answer: how long it took."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def open(self, desired: str = DESIRED, actual: str = ACTUAL) -> Follower:
        self._queue = await self._plane.follow(actual)
        self._desired = await self._plane.js.key_value(desired)
        return self

    async def round(self, key: str, data: bytes, *answer: bytes, seconds: float = 60.0) -> float:
        """Seconds from the put to an entry of `key` that holds each of `answer`."""
        begun = time.perf_counter()
        await self._desired.put(key, data)
        async with asyncio.timeout(seconds):
            while True:
                at, found, value = await self._queue.get()
                if found == key and all(part in value for part in answer):
                    return at - begun

    async def converge(
        self, device: Device, deployment: str, generation: int, contents: Mapping[str, str]
    ) -> float:
        """Seconds from a manifest's put to its ``Converged``."""
        data = device.manifest(deployment, generation, contents)
        return await self.round(
            f"{device.name}.{deployment}", data, b'"phase":"Converged"', _generation(generation)
        )

    async def remove(self, device: Device, deployment: str, generation: int) -> float:
        """The same for taking all of it off."""
        data = device.manifest(deployment, generation, {}, removed=True)
        return await self.round(
            f"{device.name}.{deployment}", data, b'"phase":"Removed"', _generation(generation)
        )


def _generation(number: int) -> bytes:
    return f'"generation":{number},'.encode()


@asynccontextmanager
async def plane(server: NatsServer, *more: str) -> AsyncIterator[Plane]:
    """The control plane with its buckets made, and `more`."""
    async with server.client(pending_size=64 * 1024 * 1024) as client:
        found = Plane(client)
        await found.make_buckets(*more)
        yield found


def said(device: Device) -> list[dict[str, Any]]:
    """What the running agent says of its deployments, asked beside NATS."""
    from harmony_agent.adapters import status_socket

    answer: list[dict[str, Any]] = status_socket.ask(device.state)["statuses"]
    return answer


def memory(pid: int) -> tuple[float, float]:
    """Resident and proportional memory in MB (10^6)."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) * 1024 / 1e6
    return found["Rss"], found["Pss"]


def processor(pid: int) -> float:
    """Seconds of processor time that it has used, threads that ended included; in steps of 10
    ms.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wakeups(pid: int) -> dict[str, int]:
    """By thread: how often it went to sleep by itself, so that something had to wake it."""
    found = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(
            FileNotFoundError, ProcessLookupError
        ):  # one that had nothing to do ends
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    found[task.name] = int(line.split()[1])
    return found


def written(pid: int) -> int:
    """Bytes that it caused to be written to a disk."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("write_bytes:"):
            return int(line.split()[1])
    return 0
