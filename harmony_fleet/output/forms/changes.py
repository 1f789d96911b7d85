"""Forms of changes at devices."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from harmony_fleet.output.forms.base import ErrorWords, Form
from harmony_fleet.rollout.plan import Action
from scores.names import Digest, Time


class FieldDiff(Form):
    """A field before and after: digests and sizes where it may be a secret."""

    field: str
    before: Any
    after: Any


class ResourceDiff(Form):
    """A resource that an apply changes."""

    resource: str
    change: Literal["added", "changed", "removed"]
    fields: list[FieldDiff]


class ApplyResult(Form):
    """The outcome of one deployment; `exit_code` is its share."""

    device: str
    deployment: str
    action: Action | Literal["refused"]
    generation: int | None
    written: bool
    changes: list[ResourceDiff]
    phase: str | None
    reason: str
    message: str
    exit_code: int


class Applied(Form):
    """All of an apply, a diff, a delete or an adopt."""

    dry_run: bool
    results: list[ApplyResult]


class Paused(Form):
    """A pause: `deployment` is null where all of the device is paused."""

    device: str
    deployment: str | None
    until: Time
    busy: list[str]


class ValidDeployment(Form):
    """A deployment of a valid file, and how many resources it has."""

    deployment: str
    resources: int


class Validated(Form):
    """A file that was checked."""

    file: str
    valid: bool
    deployments: list[ValidDeployment] = Field(default_factory=list)
    error: ErrorWords | None = None


class Resumed(Form):
    """The end of pauses; `until` is that of one of the whole device that stays."""

    device: str
    deployment: str | None
    ended: list[str]
    until: Time | None


class ObjectName(Form):
    """An object as a File names it."""

    bucket: str
    name: str
    digest: Digest


class ObjectPut(Form):
    """An object that was put."""

    object: ObjectName
    size: int
    changed: bool


class ObjectRow(Form):
    """An object, and the deployments that name it."""

    name: str
    size: int
    digest: str
    used_by: list[str]
    other_digest_wanted_by: list[str]
    damaged: bool


class SecretRow(Form):
    """A secret of a device. `version` is the time at which it was set, in milliseconds since 1970,
    or later; `trouble` is a code where no device would take it.
    """

    device: str
    name: str
    version: int
    removed: bool
    used_by: list[str]
    trouble: str


class ObjectSize(Form):
    """An object that was removed, or would be."""

    name: str
    size: int


class ObjectsRemoved(Form):
    """All of a removal."""

    dry_run: bool
    removed: list[ObjectSize]
