"""Records, statuses and manifests in one line each, for the tests of `core`."""

from __future__ import annotations

from typing import Any

from harmony_agent.core.resources import OwnershipRecord
from scores.manifest import WireManifest
from scores.status import ResourcePhase, ResourceStatus
from tests.strategies import LINEAGE

DIGEST = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64
NOW = "2026-11-29T17:00:00.000Z"
LATER = "2026-11-29T17:00:01.000Z"


def record(name: str, *claims: str, needs: tuple[str, ...] = (), **fields: Any) -> OwnershipRecord:
    """A File that deployment ``web`` owns."""
    values: dict[str, Any] = {
        "kind": "File",
        "deployment": "web",
        "spec_digest": DIGEST,
        "generation": 1,
        "on_remove": "delete",
    }
    return OwnershipRecord(name=name, claims=frozenset(claims), needs=needs, **{**values, **fields})


def resource(phase: ResourcePhase, **fields: Any) -> ResourceStatus:
    """A resource's status."""
    return ResourceStatus(
        **{"phase": phase, "generation": 1, "since": NOW, "spec_digest": DIGEST, **fields}
    )


def manifest(*names: str, **fields: Any) -> WireManifest:
    """A manifest of deployment ``web`` with a File for each name."""
    scores = [
        {"kind": "File", "name": name, "path": f"/srv/{name}", "content": ""} for name in names
    ]
    value = {
        "api": "harmony/v1",
        "device": "pi-01",
        "deployment": "web",
        "lineage": LINEAGE,
        "generation": 3,
    }
    return WireManifest.model_validate({**value, "scores": scores, **fields})
