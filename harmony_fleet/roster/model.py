"""Model of ``roster.yaml``: devices, deployments, schedules. Pure; the same model at every border.

A deployment's Scores are raw here: they may hold variables of the device, and become Scores in
`projection`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from harmony_fleet.errors import InvalidInput
from harmony_fleet.manifests import duration
from harmony_fleet.manifests.variables import Scalar
from harmony_fleet.roster.policy import Budget, RolloutPolicy
from scores.base import Model, ResourceKey, check_distinct
from scores.canonical import canonical, digest
from scores.keys import DeploymentKey
from scores.manifest import MAX_SCORES, Generation, InvalidManifest, validate
from scores.names import DeploymentName, DeviceName, Digest, Lineage, Text
from scores.schedule import Cron

RUN_PREFIX: Final = "upgrade-"
"""Only deployments of task runs have names that begin with this."""
MAX_DEADLINE: Final = 7 * 86_400.0
_VARIABLE: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_FIELD: Final = re.compile(r"[a-z][a-z0-9_]{0,62}")
_NAMING: Final = frozenset({"kind", "name"})
_BUILT_IN: Final = frozenset({"device", "class", "labels"})


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise PydanticCustomError("InvalidName", "a variable's name is of a-z 0-9 _, as http_port")
    if value in _BUILT_IN:
        raise PydanticCustomError(
            "ReservedName", "device, class and labels are variables that every device has"
        )
    return value


def _not_a_run(value: str) -> str:
    if value.startswith(RUN_PREFIX):
        raise PydanticCustomError(
            "ReservedName", "deployments named upgrade-… are those of task runs"
        )
    return value


def _deadline(value: str) -> str:
    if not 0 < (duration.seconds(value) or 0) <= MAX_DEADLINE:
        raise PydanticCustomError(
            "InvalidDuration", "must be a span of time up to 7d, as 2h or 90m"
        )
    return value


DeviceClass = DeviceName
LabelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$")]
LabelValue = Annotated[str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$")]
Labels = Mapping[LabelName, LabelValue]
VariableName = Annotated[str, AfterValidator(_variable)]
RosterName = Annotated[DeploymentName, AfterValidator(_not_a_run)]


class Selector(Model):
    """Devices of this class with all these labels, less those of `exclude`. An empty selector picks
    all.
    """

    device_class: DeviceClass | None = Field(default=None, alias="class")
    labels: Labels = Field(default_factory=dict)
    exclude: Sequence[DeviceName] = ()

    def picks(self, device: RosterDevice) -> bool:
        """Return whether `device` is meant."""
        if device.name in self.exclude:
            return False
        if self.device_class is not None and device.device_class != self.device_class:
            return False
        return all(device.labels.get(name) == value for name, value in self.labels.items())


def _field(value: str) -> str:
    if not _FIELD.fullmatch(value) or value in _NAMING:
        raise PydanticCustomError(
            "NotOverridable", "must be a field of a Score other than kind and name"
        )
    return value


OverriddenField = Annotated[str, AfterValidator(_field)]
Overrides = Mapping[RosterName, Mapping[ResourceKey, Mapping[OverriddenField, Any]]]


class RosterDevice(Model):
    """A member of the fleet. `enabled` false wins over `desired_state` running.

    `overrides` are fields of Scores that are otherwise on this device: by deployment, resource
    (``Container/web``) and field. null takes a field away.
    """

    name: DeviceName
    device_class: DeviceClass = Field(alias="class")
    labels: Labels = Field(default_factory=dict)
    enabled: bool = True
    desired_state: Literal["running", "stopped"] = "running"
    variables: Mapping[VariableName, Scalar] = Field(default_factory=dict, repr=False)
    overrides: Overrides = Field(default_factory=dict, repr=False)

    def overridden(self, deployment: str) -> list[str]:
        """``Container/web.memory``: the fields of a deployment that are otherwise here."""
        return sorted(
            f"{key}.{field}"
            for key, fields in self.overrides.get(deployment, {}).items()
            for field in fields
        )

    @property
    def runs(self) -> bool:
        """Return whether units and containers are to run there."""
        return self.enabled and self.desired_state == "running"

    def known(self) -> dict[str, Scalar]:
        """Every variable by the name that a deployment uses."""
        labels: dict[str, Scalar] = {f"labels.{name}": value for name, value in self.labels.items()}
        return {**self.variables, "device": self.name, "class": self.device_class, **labels}


class RosterDeployment(Model):
    """A manifest's name, the devices that it is for, and its Scores: inline, or in a file whose
    digest is kept.
    """

    name: RosterName
    select: Selector = Field(default_factory=lambda: Selector.model_validate({}))
    scores: Annotated[Sequence[Mapping[str, Any]], Field(max_length=MAX_SCORES)] | None = Field(
        default=None, repr=False
    )
    file: Annotated[Text, StringConstraints(min_length=1, max_length=4095)] | None = None
    digest: Digest | None = None
    rollout: RolloutPolicy | None = None

    @model_validator(mode="after")
    def _one_source(self) -> RosterDeployment:
        if (self.scores is None) == (self.file is None):
            raise PydanticCustomError("ExactlyOneOf", "needs exactly one of scores, file")
        if (self.digest is None) != (self.file is None):
            raise PydanticCustomError(
                "DigestWithFile", "a file, and nothing else, has the digest of its Scores"
            )
        return self


class Schedule(Model):
    """A recurring upgrade run. `cron` is in UTC.

    A run that could not begin at its time begins late by at most `start_within`; then it is left out.
    """

    name: RosterName
    cron: Cron
    select: Selector = Field(default_factory=lambda: Selector.model_validate({}))
    deadline: Annotated[str, AfterValidator(_deadline)]
    start_within: Annotated[str, AfterValidator(_deadline)] = "15m"
    max_unavailable: Budget
    canary: Budget | None = None
    enabled: bool = True


class Roster(Model):
    """The whole. `lineage` is the authority that its projections are written by, `generation` the
    fence. Of `version` 2 the lineage is the home's, by which `harmony apply` writes too.
    """

    version: Annotated[int, Field(ge=1, le=2)]
    lineage: Lineage
    generation: Generation
    devices: Sequence[RosterDevice] = ()
    deployments: Sequence[RosterDeployment] = ()
    schedules: Sequence[Schedule] = ()

    @model_validator(mode="after")
    def _distinct(self) -> Roster:
        for section in ("devices", "deployments", "schedules"):
            names = [item.name for item in getattr(self, section)]
            check_distinct(
                names, section, "name", "DuplicateName", "another one here has this name"
            )
        return self

    @property
    def shares_lineage(self) -> bool:
        """Return whether what is of this lineage may have been applied by hand."""
        return self.version >= 2

    def manages(self, keys: Iterable[DeploymentKey]) -> list[DeploymentKey]:
        """Those of `keys` that a deployment of the roster is for."""
        devices = {device.name: device for device in self.devices}
        selects = {one.name: one.select for one in self.deployments}
        return [
            key
            for key in keys
            if key.device in devices
            and key.deployment in selects
            and selects[key.deployment].picks(devices[key.device])
        ]

    def wire(self) -> dict[str, Any]:
        """The JSON value of what was set, by the names of the file."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)

    def content_digest(self) -> str:
        """The digest of all that the roster says, without comments and without its generation."""
        return digest(canonical({**self.wire(), "generation": 0}))

    def device(self, name: str) -> RosterDevice | None:
        """The device of this name."""
        return next((device for device in self.devices if device.name == name), None)

    def picked(self, select: Selector) -> list[RosterDevice]:
        """The enabled devices that `select` means, in the roster's order."""
        return [device for device in self.devices if device.enabled and select.picks(device)]


def exactly(
    devices: Sequence[RosterDevice], names: Collection[str], own: Selector | None = None
) -> Selector | None:
    """A selector that picks the devices of these names and no other: `own`, or the plainest that
    there is. None where there is none.
    """
    for select in _candidates(devices, names) if own is None else [own]:
        if {device.name for device in devices if select.picks(device)} == set(names):
            return select
    return None


def _candidates(devices: Sequence[RosterDevice], names: Collection[str]) -> Iterator[Selector]:
    chosen = [device for device in devices if device.name in names]
    classes = {device.device_class for device in chosen}
    of_class: dict[str, Any] = {"class": classes.pop()} if len(classes) == 1 else {}
    shared = set.intersection(*(set(device.labels.items()) for device in chosen))
    sets = [{}, *({name: value} for name, value in sorted(shared)), dict(sorted(shared))]
    for base in [of_class, {}] if of_class else [{}]:
        for labels in sets:
            if base or labels:
                yield Selector.model_validate({**base, "labels": labels})
    yield Selector.model_validate({})


def check(value: Any, where: str) -> Roster:
    """`value` (from YAML or JSON) as a Roster. Raises InvalidInput with fields and codes, never
    values.
    """
    try:
        return validate(Roster, value)
    except InvalidManifest as error:
        details = str(error).replace("the manifest: ", "the roster: ").split("; ")
        raise InvalidInput(
            error.code,
            f"cannot use {where}",
            "see docs/fleet.md for the fields",
            error.errors,
            details=details,
        ) from None
