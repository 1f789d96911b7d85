"""Many devices that speak the contract by themselves: they take what is desired, say what is so,
beat, and upgrade.

No agent runs: what an agent would say of a device that works is said at once. A device may be
unplugged, may break, may take its time; what it was asked for is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final

from nats.aio.client import Client
from nats.aio.msg import Msg

from scores import Container, SystemdUnit, SystemUpgrade
from scores.base import Score
from scores.canonical import digest
from scores.jetstream import kv_subject
from scores.keys import ACTUAL, DESIRED, HEARTBEAT, INFO, heartbeat_key, info_key
from scores.manifest import InvalidManifest, WireManifest, decode
from scores.status import (
    Capabilities,
    ContainerDetail,
    DeploymentStatus,
    DeviceInfo,
    FileDetail,
    Heartbeat,
    OsInfo,
    ResourceStatus,
    UnitDetail,
    UpdaterInfo,
    UpgradeDetail,
    UpgradeResult,
)

SINCE: Final = "2026-11-29T17:00:00.000Z"
KINDS: Final = (
    *(
        "File",
        "SystemdUnit",
        "Container",
        "SystemUpgrade",
        "Session",
        "Volume",
        "Network",
        "Package",
    ),
)


@dataclass
class Sim:
    """One device. `upgrade` is how an upgrade there ends; "vanish" is that it never comes back."""

    name: str
    plugged: bool = True
    upgrade: str = "complete"
    seconds: float = 0.05
    updater: bool = True
    boot: str = field(default_factory=lambda: str(uuid.uuid4()))
    seq: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    enforced: dict[str, tuple[str, int]] = field(default_factory=dict)
    ended: dict[str, UpgradeDetail] = field(default_factory=dict)


class SimFleet:
    """Use as ``async with SimFleet(client, names) as fleet``; `fleet["pi-01"].plugged = False`
    unplugs one.
    """

    def __init__(self, client: Client, names: Iterable[str], *, beat: float = 0.3) -> None:
        self.client = client
        self.devices = {name: Sim(name) for name in names}
        self._beat = beat
        self._tasks: set[asyncio.Task[None]] = set()
        self.said = 0

    def __getitem__(self, name: str) -> Sim:
        return self.devices[name]

    async def __aenter__(self) -> SimFleet:
        await self.client.subscribe(kv_subject(DESIRED, ">"), cb=self._desired)
        await self.tell()
        self._spawn(self._heart())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def tell(self) -> None:
        """Every device writes DeviceInfo and one heartbeat."""
        for device in self.devices.values():
            await self._info(device)
            await self.pulse(device)
        await self.client.flush()

    async def _info(self, device: Sim) -> None:
        updater = (
            UpdaterInfo(protocol=1, operations=["AptFullUpgradeV1"]) if device.updater else None
        )
        info = DeviceInfo(
            device=device.name,
            labels={},
            agent_version="0.1.0",
            boot_id=device.boot,
            os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6.1.0-rpi8"),
            kinds=KINDS,
            capabilities=Capabilities(systemd="252", podman="4.3.1", tmux="3.3a", updater=updater),
        )
        await self.client.publish(kv_subject(INFO, info_key(device.name)), info.canonical())

    async def pulse(self, device: Sim) -> None:
        """One heartbeat."""
        device.seq += 1
        beat = Heartbeat(
            device=device.name,
            seq=device.seq,
            desired_revision=1,
            oldest_unsettled_seconds=0,
            relist_age_seconds=1,
            clock_synchronized=True,
        )
        await self.client.publish(
            kv_subject(HEARTBEAT, heartbeat_key(device.name)), beat.canonical()
        )

    async def _heart(self) -> None:
        while True:
            await asyncio.sleep(self._beat)
            for device in self.devices.values():
                if device.plugged:
                    await self.pulse(device)

    async def _desired(self, message: Msg) -> None:
        name, _, deployment = message.subject.removeprefix(kv_subject(DESIRED, "")).partition(".")
        device = self.devices.get(name)
        if device is None or not device.plugged or (message.headers or {}).get("KV-Operation"):
            return
        try:
            wire = decode(bytes(message.data), device=name, deployment=deployment)
        except InvalidManifest:
            return
        lineage, generation = device.enforced.get(deployment, (wire.lineage, 0))
        if lineage not in (wire.lineage, wire.supersedes) or wire.generation <= generation:
            return
        device.enforced[deployment] = (wire.lineage, wire.generation)
        upgrade = next((score for score in wire.scores if isinstance(score, SystemUpgrade)), None)
        if upgrade is not None:
            self._spawn(self._upgrade(device, wire, upgrade))
        else:
            await self.say(wire)

    async def say(self, wire: WireManifest, phase: Any = None, **resources: Any) -> None:
        """What an agent would say of `wire`; `resources` replaces some, by key."""
        told = {score.key: resource(wire, score) for score in wire.scores}
        told |= {key: value for key, value in resources.items() if key in told}
        status = DeploymentStatus(
            device=wire.device,
            deployment=wire.deployment,
            lineage=wire.lineage,
            generation=wire.generation,
            digest=digest(wire.canonical()),
            phase=phase or ("Removed" if wire.removed else "Converged"),
            resources=told,
        )
        self.said += 1
        await self.client.publish(
            kv_subject(ACTUAL, f"{wire.device}.{wire.deployment}"), status.canonical()
        )

    async def _upgrade(self, device: Sim, wire: WireManifest, score: SystemUpgrade) -> None:
        """As updater and agent would: apply, reboot, come back, and say how it ended; the same
        attempt only once.
        """
        detail = device.ended.get(score.attempt_id)
        if detail is None:
            device.asked[score.run_uid] += 1
            await self._relay(wire, score, self._detail(device, score, "applying"), "Progressing")
            await asyncio.sleep(device.seconds)
            detail = await self._end(device, wire, score)
            if detail is None:
                return
            device.ended[score.attempt_id] = detail
        phase = "Completed" if detail.phase == "complete" else "Failed"
        with contextlib.suppress(ConnectionError):
            await self._info(device)
            await self._relay(wire, score, detail, phase)

    async def _end(
        self, device: Sim, wire: WireManifest, score: SystemUpgrade
    ) -> UpgradeDetail | None:
        if device.upgrade in ("failed", "repair-required"):
            return self._detail(device, score, device.upgrade)
        before = device.boot
        await self._relay(wire, score, self._detail(device, score, "rebooting"), "Progressing")
        device.plugged = False
        await asyncio.sleep(device.seconds)
        if device.upgrade == "vanish":
            return None
        device.plugged = True
        if device.upgrade != "same-boot":
            device.boot = str(uuid.uuid4())
        return self._detail(device, score, "complete", before)

    def _detail(
        self, device: Sim, score: SystemUpgrade, phase: Any, before: str = ""
    ) -> UpgradeDetail:
        return UpgradeDetail(
            attemptId=score.attempt_id,
            runUid=score.run_uid,
            deviceId=device.name,
            phase=phase,
            bootIdBefore=before or device.boot,
            bootIdAfter=device.boot if before else None,
            result=UpgradeResult(upgraded=["harmony-sample (1.0 => 2.0)"])
            if phase == "complete"
            else None,
        )

    async def _relay(
        self, wire: WireManifest, score: SystemUpgrade, detail: UpgradeDetail, phase: Any
    ) -> None:
        if not device_has(self, wire):
            return  # taken off meanwhile
        told = resource(wire, score).model_copy(update={"phase": phase, "status": detail})
        ended = {"Completed": "Converged", "Failed": "Failed"}
        await self.say(wire, ended.get(phase, "Progressing"), **{score.key: told})


def device_has(fleet: SimFleet, wire: WireManifest) -> bool:
    """Whether this generation is still the one that the device enforces."""
    return fleet[wire.device].enforced.get(wire.deployment) == (wire.lineage, wire.generation)


def resource(wire: WireManifest, score: Score) -> ResourceStatus:
    """A resource that is as its Score wants it."""
    return ResourceStatus(
        phase="Ready",
        generation=wire.generation,
        since=SINCE,
        spec_digest=score.spec_digest(),
        status=detail_of(score),
    )


def detail_of(score: Score) -> Any:
    """What the device sees of it."""
    if isinstance(score, SystemdUnit):
        runs = score.wanted_state == "running"
        return UnitDetail(
            load_state="loaded",
            active_state="active" if runs else "inactive",
            sub_state="running" if runs else "dead",
            unit_file_state="enabled" if score.enabled else "disabled",
            ready=runs,
        )
    if isinstance(score, Container):
        return ContainerDetail(state="Running" if score.state == "running" else "Exited")
    return FileDetail(state="PresentAt") if score.kind == "File" else None
