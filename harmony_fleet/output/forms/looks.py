"""Forms of looks at devices and deployments."""

from __future__ import annotations

from typing import Any, Literal

from harmony_fleet.client.events import EventType
from harmony_fleet.output.forms.base import Form, Open
from scores.names import Time
from scores.status import DeploymentStatus, DeviceInfo


class Place(Open):
    """A manifest as it is desired, without values; or the problem of one that can't be read."""

    device: str
    deployment: str


class DeploymentRow(Form):
    """A deployment on a device, judged. `device_silent`: it isn't heard of any more."""

    device: str
    deployment: str
    phase: str
    reason: str
    message: str
    generation: int | None
    desired_generation: int | None
    ready: int
    total: int
    age_seconds: float | None
    device_silent: bool
    converged: bool
    paused_until: Time | None


class StatusRow(DeploymentRow):
    """The same with the device's own words."""

    status: DeploymentStatus | None


class TreeNode(Form):
    """A resource. `waits_for` is the part of `after` that isn't settled."""

    resource: str
    phase: str
    reason: str
    message: str
    health: str
    drift: str
    after: list[str]
    waits_for: list[str]


class TreeBranch(DeploymentRow):
    """A deployment with its resources, in the order of work."""

    resources: list[TreeNode]


class DeviceRow(Form):
    """A device. `state` tells of its heartbeat."""

    device: str
    state: Literal["fresh", "stale", "never", "revoked"]
    heartbeat_age_seconds: float | None
    info: DeviceInfo | None
    problem: str
    paused: dict[str, Time]


class DeviceTree(DeviceRow):
    """A device with all that it has."""

    deployments: list[TreeBranch]


class EventLine(Form):
    """One event; each is a line of its own."""

    event: EventType
    at: Time | None
    device: str
    deployment: str
    resource: str
    generation: int | None
    before: str
    after: str
    reason: str
    message: str


class Waited(Form):
    """The end of a wait."""

    device: str
    deployment: str
    phase: str
    reason: str
    message: str


class Log(Form):
    """The lines; with ``--timestamps`` each begins with its time."""

    device: str
    resource: str
    lines: list[str]


class FieldMeaning(Form):
    """A field of the model `of`."""

    of: str
    name: str
    type: str
    default: str
    meaning: str
    examples: list[Any]
    parts: list[str]
