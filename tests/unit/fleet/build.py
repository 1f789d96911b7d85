"""Short ways to manifests, statuses and deployments for the tests of pure code."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from harmony_fleet.observe.state import Actual, Deployment, Desired, Device
from scores import Container, DeploymentStatus, DeviceInfo, File, Manifest, ResourceStatus
from scores.keys import DeploymentKey
from scores.manifest import WireManifest
from scores.status import Capabilities, OsInfo, Rejection

OURS = "00000000-0000-4000-8000-000000000001"
THEIRS = "00000000-0000-4000-8000-000000000002"
THIRD = "00000000-0000-4000-8000-000000000003"
KEY = DeploymentKey("pi-01", "web")
NOW = datetime(2026, 11, 29, 18, tzinfo=UTC)
DIGEST = f"sha256:{'0' * 64}"
SINCE = "2026-11-29T17:00:00.000Z"


def file(name: str = "a", content: str | None = "x", **more: Any) -> File:
    return File(name=name, path=more.pop("path", f"/srv/{name}"), content=content, **more)


def files(*names: str) -> list[File]:
    return [file(name) for name in names]


def container(**more: Any) -> Container:
    return Container(name=more.pop("name", "c"), image=more.pop("image", "localhost/c"), **more)


def manifest(*scores: Any, **more: Any) -> Manifest:
    return Manifest(deployment="web", scores=list(scores), **more)


def wire(
    *scores: Any,
    generation: int = 3,
    lineage: str = OURS,
    supersedes: str | None = None,
    **more: Any,
) -> WireManifest:
    return manifest(*scores, **more).bind("pi-01", lineage, generation, supersedes)


def resource(
    phase: Any = "Ready", reason: str = "", spec: str = DIGEST, **more: Any
) -> ResourceStatus:
    return ResourceStatus(
        phase=phase, reason=reason, generation=1, since=SINCE, spec_digest=spec, **more
    )


def status(
    phase: Any = "Converged", *, generation: int | None = 3, lineage: str | None = OURS, **more: Any
) -> DeploymentStatus:
    rejected = more.pop("rejected", None)
    if isinstance(rejected, tuple):
        rejected = Rejection(generation=rejected[0], reason=rejected[1])
    return DeploymentStatus(
        device="pi-01",
        deployment="web",
        lineage=lineage,
        generation=generation,
        digest=DIGEST if generation else None,
        phase=phase,
        rejected=rejected,
        **more,
    )


def found(
    desired: WireManifest | None = None, actual: DeploymentStatus | None = None, **more: Any
) -> Deployment:
    return Deployment(
        KEY,
        Desired(desired, 7 if desired else 0, NOW if desired else None, **more),
        Actual(actual, 9 if actual else 0, NOW if actual else None),
    )


def device(
    kinds: tuple[str, ...] = ("File", "SystemdUnit", "Container"),
    *,
    known: bool = True,
    **capabilities: Any,
) -> Device:
    has = {"systemd": "252", "podman": "4.3.1"} | capabilities
    info = DeviceInfo(
        device="pi-01",
        labels={"site": "home"},
        agent_version="0.1.0",
        boot_id="5b0e62a2-5f1c-4e6b-9a0c-1f2d3c4b5a69",
        os=OsInfo(id="debian", version_id="12", arch="aarch64", kernel="6.1"),
        kinds=kinds,
        capabilities=Capabilities(**has),
    )
    return Device("pi-01", info if known else None, NOW)
