"""Deployments and devices as an operator wants to see them: rows, ages, and what may be shown of a
manifest. Pure.

Ages are between two of the server's own times. What a silent device once said is shown, and said to
be old.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from harmony_fleet.observe.state import Deployment, Device
from scores.canonical import digest
from scores.manifest import WireManifest
from scores.status import SETTLED, DeploymentStatus

_CONTENT: Final = ("content", "content_base64")


@dataclass(frozen=True, slots=True)
class Row:
    """One deployment in `harmony status`. `wanted` and `generation` are the desired and the
    enforced one.
    """

    device: str
    deployment: str
    phase: str
    reason: str
    message: str
    wanted: int | None
    generation: int | None
    ready: int
    total: int
    age: timedelta | None
    silent: bool
    status: DeploymentStatus | None
    lineage_differs: bool = False
    hidden: bool = False

    @property
    def paused(self) -> str:
        """The end of the pause that holds it; "" if there is none."""
        told = self.status.paused if self.status is not None else None
        return told.until if told is not None else ""

    @property
    def converged(self) -> bool:
        """The device, heard of lately, has what is desired now."""
        settled = self.phase in ("Converged", "Removed") and self.wanted in (self.generation, None)
        orphan = self.phase == "Converged" and self.wanted is None
        return settled and not orphan and not self.silent and not self.lineage_differs

    def as_json(self) -> dict[str, Any]:
        """The value that ``-o json`` shows."""
        return {
            "device": self.device,
            "deployment": self.deployment,
            "phase": self.phase,
            "reason": self.reason,
            "message": self.message,
            "generation": self.generation,
            "desired_generation": self.wanted,
            "ready": self.ready,
            "total": self.total,
            "age_seconds": round(self.age.total_seconds(), 1) if self.age is not None else None,
            "device_silent": self.silent,
            "converged": self.converged,
            "paused_until": self.paused or None,
            "status": self.status.wire() if self.status else None,
        }


def rows(deployments: Iterable[Deployment], devices: Iterable[Device], now: datetime) -> list[Row]:
    """A row for each deployment, in order. `now` is the server's time."""
    silent = {device.name: device.silent(now) for device in devices}
    return [
        _row(deployment, silent.get(deployment.key.device, True), now) for deployment in deployments
    ]


def _row(found: Deployment, silent: bool, now: datetime) -> Row:
    desired, actual = found.desired, found.actual
    status, standing = actual.status, desired.manifest
    phase, reason, message = _told(found)
    wanted = standing.generation if standing else None
    resources = status.resources if status else {}
    ready = sum(1 for item in resources.values() if item.phase in SETTLED)
    total = len(resources) if resources or standing is None else len(standing.scores)
    return Row(
        device=found.key.device,
        deployment=found.key.deployment,
        phase=phase,
        reason=reason,
        message=message,
        wanted=wanted,
        generation=status.generation if status else None,
        ready=ready,
        total=total,
        age=now - actual.created
        if actual.created and not (status is None and not actual.problem)
        else None,
        silent=silent,
        status=status,
        lineage_differs=bool(
            standing and status and status.lineage and status.lineage != standing.lineage
        ),
        hidden=phase == "Removed" and (standing is None or standing.removed),
    )


def _told(found: Deployment) -> tuple[str, str, str]:
    """Return phase, reason and message: the device's own, or a substitute if it says nothing
    readable.
    """
    status = found.actual.status
    if found.actual.problem:
        return (
            "Unreadable",
            found.actual.problem,
            "its status can't be read: a newer agent may have written it",
        )
    if status is None:
        return "Waiting", "", "the device hasn't answered yet"
    if not status.reason and found.desired.problem:
        return (
            status.phase,
            "DesiredUnreadable",
            f"what stands in desired-state can't be read: {found.desired.problem}",
        )
    if (
        not status.reason
        and found.desired.manifest
        and found.desired.manifest.generation > (status.generation or 0)
    ):
        return (
            status.phase,
            "Outdated",
            f"the device still has generation {status.generation or 'none'}",
        )
    if not status.reason and found.desired.manifest is None and status.phase != "Removed":
        return (
            status.phase,
            "NotDesired",
            "nothing in desired-state: kept enforced; take it away with harmony delete",
        )
    return status.phase, status.reason, status.message


def age(span: timedelta | None) -> str:
    """``4s``, ``12m``, ``3h05m``, ``9d``; ``-`` for none."""
    if span is None:
        return "-"
    seconds = max(0, int(span.total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 7200:
        return f"{seconds // 60}m"
    if seconds < 172_800:
        return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
    return f"{seconds // 86_400}d"


def device_json(device: Device, now: datetime) -> dict[str, Any]:
    """A device as ``-o json`` shows it."""
    heard = now - device.heard if device.heard else None
    return {
        "device": device.name,
        "state": heartbeat_state(device, now),
        "heartbeat_age_seconds": round(heard.total_seconds(), 1) if heard is not None else None,
        "info": device.info.wire() if device.info else None,
        "problem": device.problem,
        "paused": dict(device.info.paused) if device.info else {},
    }


def heartbeat_state(device: Device, now: datetime) -> str:
    """``fresh``, ``stale``, ``never``, or ``revoked``."""
    if device.revoked:
        return "revoked"
    if device.heard is None:
        return "never"
    return "stale" if device.silent(now) else "fresh"


def kinds(device: Device) -> list[str]:
    """The kinds that the device allows, each with the version of what it stands on: ``Container
    (podman 4.3.1)``.
    """
    if device.info is None:
        return []
    has = device.info.capabilities
    podman = f"podman {has.podman}" if has.podman else "no podman"
    below = {
        "SystemdUnit": f"systemd {has.systemd}" if has.systemd else "no systemd",
        **dict.fromkeys(("Container", "Volume", "Network"), podman),
        "Session": f"tmux {has.tmux}" if has.tmux else "no tmux",
        "SystemUpgrade": f"updater {has.updater.protocol}" if has.updater else "no updater",
    }
    return [f"{kind} ({below[kind]})" if kind in below else kind for kind in device.info.kinds]


def masked(manifest: WireManifest) -> dict[str, Any]:
    """The manifest without the content of files and units and without the values of variables.

    What stands in their place is no text, so that a masked manifest can't be applied by mistake.
    """
    wire = manifest.wire()
    wire["scores"] = [_masked_score(score) for score in wire["scores"]]
    return wire


def _masked_score(score: Mapping[str, Any]) -> dict[str, Any]:
    shown = dict(score)
    for name in _CONTENT:
        if isinstance(shown.get(name), str):
            shown[name] = _hidden(name, shown[name])
    if shown.get("dropins"):
        shown["dropins"] = {
            name: _hidden("content", text) for name, text in shown["dropins"].items()
        }
    if shown.get("template"):
        shown["template"] = [
            _hidden("content", part) if isinstance(part, str) else part
            for part in shown["template"]
        ]
    if shown.get("env"):
        shown["env"] = {
            key: {"hidden": True} if isinstance(value, str) else value
            for key, value in shown["env"].items()
        }
    if shown.get("init_containers"):
        shown["init_containers"] = [_masked_score(item) for item in shown["init_containers"]]
    return shown


def _hidden(name: str, text: str) -> dict[str, Any]:
    data = text.encode()
    if name == "content_base64":
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return {"hidden": True}
    return {"hidden": True, "bytes": len(data), "digest": digest(data)}
