"""A device as the buckets show it, written by the test itself: what an agent would say, when the
test says it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client

from scores.canonical import canonical, digest
from scores.jetstream import kv_subject
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, HISTORY, INFO, heartbeat_key, info_key
from scores.manifest import WireManifest, decode
from scores.status import (
    Capabilities,
    DeploymentStatus,
    DeviceInfo,
    Heartbeat,
    OsInfo,
    Rejection,
    ResourceStatus,
)

BOOT = "5b0e62a2-5f1c-4e6b-9a0c-1f2d3c4b5a69"
SINCE = "2026-11-29T17:00:00.000Z"
OTHER = "00000000-0000-4000-8000-000000000001"


class SimulatedDevice:
    """Writes as the agent of `name` would."""

    def __init__(self, client: Client, name: str) -> None:
        self.client = client
        self.name = name
        self.beats = 0

    async def put(self, bucket: str, key: str, value: bytes) -> None:
        """Write a key, making its bucket where the control plane hasn't yet."""
        js = self.client.jetstream()
        try:
            await js.publish(kv_subject(bucket, key), value)
        except Exception:
            await js.create_key_value(bucket=bucket, history=HISTORY.get(bucket, 1), direct=True)
            await js.publish(kv_subject(bucket, key), value)

    async def tell(
        self,
        *,
        kinds: tuple[str, ...] = ("File", "SystemdUnit", "Container"),
        labels: Mapping[str, str] | None = None,
        systemd: str | None = "252",
        podman: str | None = "4.3.1",
    ) -> None:
        """Write DeviceInfo."""
        info = DeviceInfo(
            device=self.name,
            labels=labels if labels is not None else {"site": "home"},
            agent_version="0.1.0",
            boot_id=BOOT,
            os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6.1.0-rpi8"),
            kinds=kinds,
            capabilities=Capabilities(systemd=systemd, podman=podman),
        )
        await self.put(INFO, info_key(self.name), info.canonical())

    async def beat(self) -> None:
        """Write a Heartbeat."""
        self.beats += 1
        beat = Heartbeat(
            device=self.name,
            seq=self.beats,
            desired_revision=1,
            oldest_unsettled_seconds=0,
            relist_age_seconds=1,
            clock_synchronized=True,
        )
        await self.put(HEARTBEAT, heartbeat_key(self.name), beat.canonical())

    async def say(self, status: DeploymentStatus) -> None:
        """Write a DeploymentStatus."""
        await self.put(ACTUAL, f"{self.name}.{status.deployment}", status.canonical())

    async def desired(self, deployment: str) -> WireManifest | None:
        """What is desired of a deployment here."""
        request = json.dumps(
            {"last_by_subj": kv_subject(DESIRED, f"{self.name}.{deployment}")}
        ).encode()
        answer = await self.client.request(
            f"$JS.API.STREAM.MSG.GET.KV_{DESIRED}", request, timeout=30
        )
        message = json.loads(answer.data).get("message")
        if message is None or ("hdrs" in message and "data" not in message):
            return None
        import base64

        return decode(base64.b64decode(message["data"]), device=self.name, deployment=deployment)

    async def when_desired(self, deployment: str, generation: int = 1) -> WireManifest:
        """Wait until this generation is desired."""
        async with asyncio.timeout(60):
            while True:
                wire = await self.desired(deployment)
                if wire is not None and wire.generation >= generation:
                    return wire
                await asyncio.sleep(0.02)

    async def converge(self, deployment: str, generation: int = 1) -> WireManifest:
        """Wait until this generation is desired, then say that it is so (or removed)."""
        wire = await self.when_desired(deployment, generation)
        await self.say(status_of(wire))
        return wire


def status_of(
    wire: WireManifest, phase: Any = None, resources: Any = None, **more: Any
) -> DeploymentStatus:
    """A status of `wire`: Converged with all its resources Ready, Removed, or as told. `resources`
    maps key to phase or to a tuple of phase and reason."""
    told = {score.key: "Ready" for score in wire.scores} if resources is None else resources
    specs = {score.key: score.spec_digest() for score in wire.scores}
    return DeploymentStatus(
        device=wire.device,
        deployment=wire.deployment,
        lineage=more.pop("lineage", wire.lineage),
        generation=more.pop("generation", wire.generation),
        digest=digest(wire.canonical()),
        phase=phase or ("Removed" if wire.removed else "Converged"),
        resources={
            key: resource(
                *([value] if isinstance(value, str) else value), wire=wire, spec=specs.get(key)
            )
            for key, value in told.items()
        },
        **more,
    )


def resource(
    phase: Any, reason: str = "", *, wire: WireManifest, spec: str | None, **more: Any
) -> ResourceStatus:
    """One resource's status."""
    return ResourceStatus(
        phase=phase,
        reason=reason,
        generation=wire.generation,
        since=SINCE,
        spec_digest=spec or f"sha256:{'0' * 64}",
        **more,
    )


def rejection(wire: WireManifest, phase: str, reason: str) -> DeploymentStatus:
    """The device kept nothing before, and doesn't accept `wire`."""
    return status_of(
        wire,
        phase,
        {},
        lineage=None,
        generation=None,
        reason=reason,
        rejected=Rejection(generation=wire.generation, reason=reason),
    ).model_copy(update={"digest": None})


def text(value: Any) -> bytes:
    """Canonical JSON."""
    return canonical(value)
