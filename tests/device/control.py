"""The control plane's hand in a test: manifests go into a real nats-server, statuses come back.

    with Control(lan.nats.host_url) as control:
        control.apply("pi-01", Manifest(deployment="web", scores=[…]))
        control.wait("pi-01", "web", phase="Converged")

Synchronous, so that a test reads from top to bottom; the client runs on a loop in a thread of its
own.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.errors import TimeoutError as NatsTimeoutError
from nats.js import JetStreamContext
from nats.js.api import KeyValueConfig, StorageType
from nats.js.errors import KeyNotFoundError

from scores import Manifest
from scores.canonical import read
from scores.keys import ACTUAL, BUCKETS, DESIRED, HISTORY, DeploymentKey, command_subject
from scores.status import DeploymentStatus

T = TypeVar("T")
LINEAGE = "7b0e0000-0000-4000-8000-000000000001"


class Control:
    """Buckets, manifests and statuses on one server. A context manager."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._generations: dict[str, int] = {}

    def __enter__(self) -> "Control":
        self._thread.start()
        self._client = self._do(nats.connect(self._url))
        self._jetstream = self._client.jetstream()
        self._do(self._make_buckets())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._do(self._client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Not connected: for a test that restarts the server, so that only the device has to come
        back by itself.
        """
        self._do(self._client.close())
        yield
        self._client = self._do(nats.connect(self._url))
        self._jetstream = self._client.jetstream()

    @property
    def client(self) -> Client:
        """The connection; its coroutines run by `do`."""
        return self._client

    @property
    def jetstream(self) -> JetStreamContext:
        """JetStream; its coroutines run by `do`."""
        return self._jetstream

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the client's and return what it returns."""
        return self._do(work)

    def apply(self, device: str, manifest: Manifest) -> int:
        """Put the next generation of a manifest; which one that is."""
        key = str(DeploymentKey(device, manifest.deployment))
        generation = self._generations[key] = self._generations.get(key, 0) + 1
        value = manifest.bind(device, LINEAGE, generation).canonical()
        self._do(self._put(key, value))
        return generation

    def status(self, device: str, deployment: str) -> DeploymentStatus | None:
        """What `actual-state` shows."""
        value = self._do(self._get(str(DeploymentKey(device, deployment))))
        return None if value is None else DeploymentStatus.model_validate_json(value)

    def raw_status(self, device: str, deployment: str) -> Any:
        """The same as the JSON that it is."""
        value = self._do(self._get(str(DeploymentKey(device, deployment))))
        return None if value is None else read(value, len(value))

    def until(
        self,
        device: str,
        deployment: str,
        good: Callable[[DeploymentStatus], bool],
        timeout: float = 60,
    ) -> DeploymentStatus:
        """Wait for a status that `good` says yes to."""
        deadline = time.monotonic() + timeout
        while True:
            status = self.status(device, deployment)
            if status is not None and good(status):
                return status
            if time.monotonic() > deadline:
                shown = None if status is None else status.model_dump_json(indent=1)
                raise AssertionError(
                    f"{deployment} on {device} didn't get there in {timeout} s: {shown}"
                )
            time.sleep(0.05)

    def wait(
        self, device: str, deployment: str, *, phase: str = "Converged", timeout: float = 60
    ) -> DeploymentStatus:
        """Wait until the newest generation that was put is in `phase`."""
        generation = self._generations[str(DeploymentKey(device, deployment))]
        return self.until(
            device, deployment, lambda s: (s.generation, s.phase) == (generation, phase), timeout
        )

    def converge(self, device: str, manifest: Manifest, timeout: float = 60) -> DeploymentStatus:
        """apply() and wait()."""
        self.apply(device, manifest)
        return self.wait(device, manifest.deployment, timeout=timeout)

    def remove(self, device: str, deployment: str, timeout: float = 60) -> DeploymentStatus:
        """Take a deployment off the device and wait until it is."""
        self.apply(device, Manifest(deployment=deployment, removed=True))
        return self.wait(device, deployment, phase="Removed", timeout=timeout)

    def resource(self, device: str, deployment: str, key: str) -> tuple[str, str]:
        """Phase and reason of one resource."""
        status = self.status(device, deployment)
        found = None if status is None else status.resources.get(key)
        return ("", "") if found is None else (found.phase, found.reason)

    def resync(self, device: str, timeout: float = 60) -> None:
        """Have the agent look at everything now; waits for one that is only starting.

        A server that hasn't noticed yet that an earlier connection is dead sends the request there:
        so it is repeated.
        """
        deadline = time.monotonic() + timeout
        while True:
            try:
                self._do(self._client.request(command_subject(device, "resync"), b"", timeout=3))
            except (NoRespondersError, NatsTimeoutError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return

    def put_object(self, bucket: str, name: str, content: bytes) -> None:
        """An object in an object store, which is made if it isn't there."""
        self._do(self._put_object(bucket, name, content))

    async def _make_buckets(self) -> None:
        for bucket in BUCKETS:
            await self._jetstream.create_key_value(
                KeyValueConfig(
                    bucket=bucket, history=HISTORY.get(bucket, 1), storage=StorageType.FILE
                )
            )

    async def _put(self, key: str, value: bytes) -> None:
        await (await self._jetstream.key_value(DESIRED)).put(key, value)

    async def _get(self, key: str) -> bytes | None:
        try:
            return (await (await self._jetstream.key_value(ACTUAL)).get(key)).value
        except KeyNotFoundError:
            return None

    async def _put_object(self, bucket: str, name: str, content: bytes) -> None:
        store = await self._jetstream.create_object_store(bucket)
        await store.put(name, content)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)
