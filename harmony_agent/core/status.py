"""Folds: an outcome becomes a resource's status, and the resources' become their deployment's.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.frozen import frozen
from scores.canonical import canonical
from scores.status import (
    DeploymentPhase,
    DeploymentStatus,
    Detail,
    Drift,
    RejectedField,
    Rejection,
    ResourcePhase,
    ResourceStatus,
)

MAX_MESSAGE: Final = 512
"""Characters of a message; statuses stay small."""
MAX_MESSAGES: Final = 128 * 1024
"""Bytes of all messages of a deployment's resources: a thousand that fail must still fit into one
value.
"""

MAX_BYTES: Final = 1024 * 1024 - 4096
"""Of a status: what a server carries by default, less its headers."""

_EMPTY: Final = b'"resources":{}'
"""Nothing else in a status can look so: in a text its quotes have a backslash before them."""

_WEIGHT: Final[Mapping[str, int]] = {
    "Failed": 5,
    "Blocked": 4,
    "Unknown": 3,
    "Degraded": 3,
    "Removing": 2,
    "Pending": 1,
    "Progressing": 1,
    "Ready": 0,
    "Completed": 0,
}
_FOLDED: Final[Mapping[int, DeploymentPhase]] = {
    5: "Failed",
    4: "Degraded",
    3: "Degraded",
    2: "Progressing",
    1: "Progressing",
    0: "Converged",
}


@frozen()
class Outcome:
    """Result of one pass over a resource."""

    phase: ResourcePhase
    reason: str = ""
    message: str = ""
    detail: Detail | None = None
    drift: Drift | None = None


def resource_status(
    old: ResourceStatus | None, outcome: Outcome, generation: int, spec_digest: str, now: str
) -> ResourceStatus:
    """The status after `outcome`; `since` stays while the phase does. A failed look keeps the last
    known detail.
    """
    unchanged = old is not None and old.phase == outcome.phase and old.spec_digest == spec_digest
    detail = outcome.detail
    if detail is None and outcome.phase == "Unknown" and old is not None:
        detail = old.status
    return ResourceStatus(
        phase=outcome.phase,
        reason=outcome.reason,
        message=outcome.message[:MAX_MESSAGE],
        generation=generation,
        since=old.since if unchanged and old is not None else now,
        spec_digest=spec_digest,
        drift=outcome.drift,
        status=detail,
    )


@frozen()
class Enforced:
    """The manifest that a deployment is held to."""

    lineage: str
    generation: int
    digest: str
    removed: bool


def deployment_status(
    device: str,
    deployment: str,
    enforced: Enforced | None,
    not_accepted: NotAccepted | None,
    resources: Mapping[str, ResourceStatus],
) -> DeploymentStatus:
    """Fold a deployment. Where a manifest was not accepted, the phase tells that first."""
    phase, reason, message = _fold(enforced, resources)
    if not_accepted is not None:
        phase, reason, message = not_accepted.phase, not_accepted.reason, not_accepted.message
    return DeploymentStatus(
        device=device,
        deployment=deployment,
        lineage=enforced.lineage if enforced else None,
        generation=enforced.generation if enforced else None,
        digest=enforced.digest if enforced else None,
        phase=phase,
        reason=reason,
        message=message[:MAX_MESSAGE],
        resources=_fitting(resources),
        rejected=rejection(not_accepted),
    )


def rejection(not_accepted: NotAccepted | None) -> Rejection | None:
    """Describe a manifest that was not accepted. None if there is none."""
    if not_accepted is None or (not_accepted.generation is None and not not_accepted.errors):
        return None
    fields = [RejectedField(field=error.field, code=error.code) for error in not_accepted.errors]
    return Rejection(generation=not_accepted.generation, reason=not_accepted.reason, errors=fields)


def deployment_phase(
    enforced: Enforced | None, not_accepted: NotAccepted | None, phases: Collection[ResourcePhase]
) -> DeploymentPhase:
    """Compute the phase of `deployment_status` from the phases of the resources alone.

    The whole fold costs much more.
    """
    if not_accepted is not None:
        return not_accepted.phase
    if enforced is not None and enforced.removed:
        return "Removing" if phases else "Removed"
    return _FOLDED[max((_WEIGHT[phase] for phase in phases), default=0)]


def _fitting(resources: Mapping[str, ResourceStatus]) -> dict[str, ResourceStatus]:
    """Sort by key, and cut the messages where there are many."""
    ordered = dict(sorted(resources.items()))
    share = MAX_MESSAGES // max(1, len(ordered))
    for key, status in ordered.items():
        if len(status.message) * 4 > share and len(data := status.message.encode()) > share:
            ordered[key] = status.model_copy(
                update={"message": data[:share].decode(errors="ignore")}
            )
    return ordered


def _fold(
    enforced: Enforced | None, resources: Mapping[str, ResourceStatus]
) -> tuple[DeploymentPhase, str, str]:
    phases = {status.phase for status in resources.values()}
    phase = deployment_phase(enforced, None, phases)
    weight = max((_WEIGHT[one] for one in phases), default=0)
    if weight == 0:
        return phase, "", ""
    behind = [key for key, status in resources.items() if _WEIGHT[status.phase]]
    key = min(
        key for key in behind if _WEIGHT[resources[key].phase] == weight
    )  # the same one is told each time
    status = resources[key]
    return (
        phase,
        status.reason,
        f"{len(behind)} of {len(resources)} not settled; {key}: {status.message or status.phase}",
    )


Texts = dict[str, tuple[ResourceStatus, bytes]]
"""The resources of a deployment as they were last written, each with its key: of a thousand, most
are as before.
"""


def encode(status: DeploymentStatus, known: Texts) -> bytes:
    """Encode like `status.canonical()`. Takes unchanged resources from `known`, and renews it."""
    texts: Texts = {}
    for key, one in sorted(status.resources.items()):
        before = known.get(key)
        if before is None or before[0] is not one:
            before = one, b"%s:%s" % (canonical(key), one.canonical())
        texts[key] = before
    known.clear()
    known.update(texts)
    inner = b",".join([text for _, text in texts.values()])
    rest = status.model_copy(update={"resources": {}}).canonical()
    return rest.replace(_EMPTY, b'"resources":{%s}' % inner, 1)


def bounded(status: DeploymentStatus, known: Texts) -> bytes:
    """Encode a status within `MAX_BYTES`. In one that is too large, resources keep phase and reason
    alone.
    """
    data = encode(status, known)
    if len(data) <= MAX_BYTES:
        return data
    cut = {
        key: one.model_copy(update={"message": "", "status": None})
        for key, one in status.resources.items()
    }
    return status.model_copy(update={"resources": cut}).canonical()
