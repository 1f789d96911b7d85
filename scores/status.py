"""Reports of a device: DeploymentStatus, DeviceInfo, Heartbeat.

Names and digests only, never a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from scores.base import Model
from scores.manifest import MAX_ERRORS, Generation
from scores.names import MAX_GENERATION, DeploymentName, DeviceName, Digest, Lineage, Time
from scores.signatures import KeyId

DeploymentPhase = Literal[
    "Converged",
    "Progressing",
    "Degraded",
    "Failed",
    "Held",
    "Fenced",
    "Rejected",
    "Removing",
    "Removed",
]
ResourcePhase = Literal[
    "Pending",
    "Progressing",
    "Ready",
    "Completed",
    "Degraded",
    "Failed",
    "Blocked",
    "Removing",
    "Unknown",
]
Count = Annotated[int, Field(ge=0, le=MAX_GENERATION)]
"""A number of something, or of seconds: at most 16 digits, so that a heartbeat's bytes have a
bound.
"""
SETTLED: Final = frozenset({"Ready", "Completed"})
"""Resource phases that let what comes `after` go on."""


class Reported(Model):
    """A model that is written whole: readers find every field, set or not."""

    def wire(self) -> dict[str, Any]:
        """The JSON value with every field."""
        return self.model_dump(mode="json")


class FileDetail(Reported):
    """A File as found. `digest` is of the content, `mode` four octal digits; null where the type
    has none.
    """

    kind: Literal["File"] = "File"
    state: Literal["PresentAt", "Absent", "Directory", "Symlink"]
    digest: Digest | None = None
    mode: str | None = None
    owner: str | None = None
    group: str | None = None


class UnitDetail(Reported):
    """A unit as systemd's manager shows it; `since` is when `active_state` was entered."""

    kind: Literal["SystemdUnit"] = "SystemdUnit"
    load_state: str
    active_state: str
    sub_state: str
    unit_file_state: str
    main_pid: int = 0
    restarts: int = 0
    since: Time | None = None
    condition: bool | None = None
    ready: bool = False


class PullDetail(Reported):
    """Progress of the pull of an image. The bytes are of the layers whose size is known by now."""

    image: str
    layers: Count = 0
    layers_done: Count = 0
    bytes: Count = 0
    total_bytes: Count = 0
    bytes_per_second: Count = 0


class RunDetail(Reported):
    """The last run that ended for good. `due` is the time of the schedule that it was begun for.

    `Cut`: its end wasn't seen, for the device went down or its container was removed.
    """

    result: Literal["Exited", "Cut", "NotStarted"]
    due: Time | None = None
    started: Time | None = None
    ended: Time | None = None
    exit_code: int | None = None


class ScheduleDetail(Reported):
    """A schedule. `missed` counts the times that began no run since it is as it is; `missed_at` is
    the latest of them.
    """

    next: Time | None = None
    missed: Count = 0
    missed_at: Time | None = None


class ContainerDetail(Reported):
    """A container as podman shows it; `since` is when it entered `state`."""

    kind: Literal["Container"] = "Container"
    state: Literal["Running", "Created", "Exited", "Paused", "Absent"]
    id: str | None = None
    image_digest: str | None = None
    since: Time | None = None
    restarts: int = 0
    exit_code: int | None = None
    ready: bool = False
    pull: PullDetail | None = None
    last_run: RunDetail | None = None
    schedule: ScheduleDetail | None = None
    """these are left out where there is none, so that those who don't know them can read the rest"""

    @model_serializer(mode="wrap")
    def _brief(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        value: dict[str, Any] = handler(self)
        for name in ("pull", "last_run", "schedule"):
            if value[name] is None:
                del value[name]
        return value


class UpgradeResult(Reported):
    """Result of an upgrade: package names (with versions), kept conffiles, dpkg's audit lines."""

    upgraded: Sequence[str] = ()
    installed: Sequence[str] = ()
    removed: Sequence[str] = ()
    held: Sequence[str] = ()
    keptConffiles: Sequence[str] = ()  # the wire's name
    dpkgAudit: Sequence[str] = ()


class UpgradeDetail(Reported):
    """The updater's own word on an attempt, field for field."""

    kind: Literal["SystemUpgrade"] = "SystemUpgrade"
    attemptId: str
    runUid: str
    deviceId: str
    phase: Literal[
        "blocked",
        "preflight",
        "applying",
        "rebooting",
        "verifying",
        "complete",
        "failed",
        "repair-required",
    ]
    reason: str = ""
    message: str = ""
    startedAt: str | None = None
    updatedAt: str | None = None
    bootIdBefore: str | None = None
    bootIdAfter: str | None = None
    result: UpgradeResult | None = None


class DeadPane(Reported):
    """A terminal of a session whose command has ended; `exit_code` is 128 and the signal's number
    where a signal ended it.
    """

    pane: str
    exit_code: int | None = None


MAX_PANES: Final = 20


class SessionDetail(Reported):
    """A session as tmux shows it. `pid`, `since` and `exit_code` are of the command that it was made
    for; `attached` counts the clients that look at it.
    """

    kind: Literal["Session"] = "Session"
    state: Literal["Running", "Exited", "Absent"]
    pid: int | None = None
    since: Time | None = None
    attached: int = 0
    restarts: int = 0
    exit_code: int | None = None
    dead_panes: Annotated[Sequence[DeadPane], Field(max_length=MAX_PANES)] = ()
    ready: bool = False


class VolumeDetail(Reported):
    """A volume as podman shows it."""

    kind: Literal["Volume"] = "Volume"
    state: Literal["Present", "Absent"]
    driver: str = ""
    since: Time | None = None


class NetworkDetail(Reported):
    """A network as podman shows it."""

    kind: Literal["Network"] = "Network"
    state: Literal["Present", "Absent"]
    driver: str = ""
    subnets: Annotated[Sequence[str], Field(max_length=8)] = ()


class PackageDetail(Reported):
    """A package as dpkg knows it."""

    kind: Literal["Package"] = "Package"
    state: Literal["Installed", "Broken", "Absent"]
    version: str = ""


Detail = Annotated[
    FileDetail
    | UnitDetail
    | ContainerDetail
    | UpgradeDetail
    | SessionDetail
    | VolumeDetail
    | NetworkDetail
    | PackageDetail,
    Field(discriminator="kind"),
]


class Drift(Reported):
    """An episode in which the device was found not as wanted. `fields` are field names; `count` is
    of repairs.
    """

    count: int
    fields: Sequence[str]
    first_seen: Time
    last_seen: Time
    action: Literal["repaired", "reported", "contended"]


class ResourceStatus(Reported):
    """One resource. `generation` is the one in which its own spec last changed; `since` is when
    `phase` was entered.
    """

    phase: ResourcePhase
    reason: str = ""
    message: str = ""
    generation: Generation
    since: Time
    spec_digest: Digest
    drift: Drift | None = None
    status: Detail | None = None


class RejectedField(Reported):
    """Place of an error in a rejected manifest, with a code."""

    field: str
    code: str


class Rejection(Reported):
    """A newer manifest that was not accepted; `generation` is null where it could not be read."""

    generation: int | None
    reason: str
    errors: Annotated[Sequence[RejectedField], Field(max_length=MAX_ERRORS)] = ()


class PauseInfo(Reported):
    """The pause that holds a deployment as it is, its own or its device's; `until` is by the device's
    clock.
    """

    scope: Literal["deployment", "device"]
    until: Time


class DeploymentStatus(Reported):
    """A value of ``actual-state``. `generation`, `lineage` and `digest` are of the manifest that is
    enforced.

    They are null where none was ever accepted; they never go back.
    """

    api: Literal["harmony/v1"] = "harmony/v1"
    device: DeviceName
    deployment: DeploymentName
    lineage: Lineage | None
    generation: Generation | None
    digest: Digest | None
    phase: DeploymentPhase
    reason: str = ""
    message: str = ""
    resources: Mapping[str, ResourceStatus] = Field(default_factory=dict)
    rejected: Rejection | None = None
    paused: PauseInfo | None = None
    """left out where nothing is paused, so that those who know nothing of pauses can read the rest"""

    def wire(self) -> dict[str, Any]:
        """The JSON value with every field that says something."""
        value = super().wire()
        if self.paused is None:
            del value["paused"]
        return value


class OsInfo(Reported):
    """From os-release and uname."""

    id: str
    version_id: str
    arch: str
    kernel: str


class UpdaterInfo(Reported):
    """Operations of the root updater."""

    protocol: int
    operations: Sequence[str]


class Capabilities(Reported):
    """Versions of what the device offers; null where it isn't there."""

    systemd: str | None = None
    podman: str | None = None
    tmux: str | None = None
    updater: UpdaterInfo | None = None


class TrustInfo(Reported):
    """The ids of the keys whose manifests the device believes; with `require` it believes no
    other.
    """

    require: bool
    keys: Sequence[KeyId]


class SealingInfo(Reported):
    """The key that secrets are sealed for, as ``x25519:<base64>``, and who vouches for it: the
    device's NATS identity, with its signature in base64; empty where it has none.
    """

    key: str
    user: str = ""
    signature: str = ""


MAX_NAMES: Final = 20
Names = Annotated[Sequence[Annotated[str, Field(max_length=256)]], Field(max_length=MAX_NAMES)]
"""Some names, the first in order where there are more."""
_LEFT_OUT: Final = frozenset(
    {"trust", "unmanaged", "ignored_keys", "disturbed", "missing_controllers", "paused", "sealing"}
)


class DeviceInfo(Reported):
    """A value of ``device-info``, written on change."""

    api: Literal["harmony/v1"] = "harmony/v1"
    device: DeviceName
    labels: Mapping[str, str]
    agent_version: str
    boot_id: str
    os: OsInfo
    kinds: Sequence[str]
    capabilities: Capabilities
    trust: TrustInfo | None = None
    """left out where no key is configured, so that those who know nothing of keys can read the
    rest
    """
    unmanaged: Names = ()
    """containers with this device's labels that neither ledger nor manifest knows; left out where
    there are none
    """
    ignored_keys: Names = ()
    """keys of ``desired-state`` at this device that name no deployment; left out where there are
    none
    """

    disturbed: Names = ()
    """settings of the agent's unit that something on the device changed for the running process,
    and that were put back; left out where there are none
    """

    missing_controllers: Names = ()
    """cgroup controllers that limits of containers need and the device lacks: ``memory``, ``cpu``,
    ``pids``; left out where there are none
    """

    paused: Mapping[str, Time] = Field(default_factory=dict)
    """by deployment, or ``*`` for all of the device: the end of its pause by the device's clock;
    left out where nothing is paused
    """

    sealing: SealingInfo | None = None
    """left out where the device has no key"""

    def wire(self) -> dict[str, Any]:
        """The JSON value with every field that says something."""
        value = super().wire()
        return {name: item for name, item in value.items() if item or name not in _LEFT_OUT}


class Heartbeat(Reported):
    """A value of ``device-heartbeat``: at most 256 bytes. Ages are in seconds and never of another
    machine's clock.
    """

    device: DeviceName
    seq: Count
    desired_revision: Count
    oldest_unsettled_seconds: Count
    relist_age_seconds: Count
    clock_synchronized: bool | None
