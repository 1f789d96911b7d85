"""Forms of the fleet, its roster, keys, credentials and runs."""

from __future__ import annotations

from typing import Literal

from harmony_fleet.output.forms.base import Form, Open
from harmony_fleet.output.forms.changes import ApplyResult, ResourceDiff
from harmony_fleet.rollout.plan import Action
from scores.names import Digest, Lineage
from scores.task_run import RunPhase


class FindingRow(Form):
    """A difference between the roster and the devices."""

    code: str
    device: str | None
    deployment: str | None
    resource: str | None
    detail: str
    response: str


class Findings(Form):
    """All differences."""

    generation: int
    findings: list[FindingRow]


class LastError(Form):
    """The newest of what is wrong with a deployment."""

    device: str
    phase: str
    reason: str


class DeploymentCount(Form):
    """A deployment over all its devices."""

    deployment: str
    succeeded: int
    failed: int
    pending: int
    held: int
    last_error: LastError | None


class FleetStatus(Form):
    """The fleet in numbers."""

    generation: int
    lineage: str
    members: int
    deployments: list[DeploymentCount]
    devices: int
    stale: list[str]


class RunSummary(Open):
    """A run in numbers."""

    run_uid: str
    phase: RunPhase
    targets: int
    states: dict[str, int]


class RosterChange(Form):
    """The roster after a change."""

    generation: int
    changed: bool


class RosterMade(Form):
    """A new roster, and where it is."""

    roster: str
    lineage: Lineage
    generation: int


class RosterShown(Open):
    """The roster without variables and inline Scores."""

    lineage: Lineage
    generation: int


class RosterItem(Open):
    """A device, a deployment or a schedule of the roster, as it was written and as it is."""

    name: str


class Pulled(Form):
    """A roster that was pulled. `elsewhere` names files that copies don't hold."""

    generation: int
    changed: bool
    elsewhere: list[str]


class KeyRemoved(Form):
    """A key of ``desired-state`` that named no deployment."""

    key: str
    revision: int
    removed: bool


class PlanScope(Form):
    """Limits of a plan, and what it was allowed."""

    devices: list[str]
    take_over: bool
    allow_prune: int | None
    allow_removals: int | None
    follow: bool


class PlannedWrite(Form):
    """A manifest that is to be written."""

    device: str
    deployment: str
    action: Action
    generation: int
    digest: Digest
    revision: int
    changes: list[ResourceDiff]


class PlannedOverride(Form):
    """Fields that are otherwise at this device than in its deployment: ``Container/web.memory``."""

    device: str
    deployment: str
    fields: list[str]


class PlannedPurge(Form):
    """A key that is to be purged."""

    device: str
    deployment: str
    revision: int


class PlannedRefusal(Form):
    """A deployment that is not written, and why."""

    device: str
    deployment: str
    code: str
    message: str


class FleetPlanned(Form):
    """Work of an apply of the roster."""

    api: Literal["harmony/v1"]
    kind: Literal["FleetPlan"]
    lineage: Lineage
    generation: int
    content: str
    buckets: str
    scope: PlanScope
    writes: list[PlannedWrite]
    purges: list[PlannedPurge]
    unchanged: int
    overridden: list[PlannedOverride]
    refused: list[PlannedRefusal]


class FleetPlanShown(FleetPlanned):
    """The same, and what differs."""

    findings: list[FindingRow]


class FleetApplied(FleetPlanned):
    """The same, and what became of each write."""

    results: list[ApplyResult]


class SigningKey(Form):
    """A key that signs manifests: its public half."""

    key: str
    state: Literal["active", "retired"]
    public: str


class SigningKeyTurned(Form):
    """A key that signs no more, or again."""

    key: str
    state: Literal["active", "retired"]
    changed: bool


class Credentials(Form):
    """A device's credentials. `replaced` counts older ones that still hold."""

    device: str
    replaced: int


class Enrolled(Open):
    """The settings that a device was enrolled with."""

    device: str
    remembered: bool
    replaced: int


class AdoptedPlace(Form):
    """A deployment of a device, and the generation that stands."""

    device: str
    deployment: str
    generation: int


class Adopted(Form):
    """Deployments that were applied by hand and are the roster's now; `files` are theirs, beside it.
    `generation` is the roster's.
    """

    generation: int
    adopted: list[AdoptedPlace]
    files: dict[str, str]


class Forgotten(Form):
    """A device that was forgotten. `left` says what is left undone."""

    device: str
    forgotten: bool
    left: list[str]


class ServerNode(Open):
    """A NATS server that was made."""

    name: str
    host: str


class ServersMade(Form):
    """The servers, and the folder of their authority."""

    authority: str
    servers: list[ServerNode]
