"""Container: one container, its resources and its health, as podman runs it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import WHOLE, Model, Score, fault, repeated
from scores.file import Path, normal_path
from scores.names import MAX_GENERATION, Text
from scores.probes import Period, Port, Probe, Seconds, Threshold

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_QUANTITY: Final = re.compile(r"(?P<number>[1-9][0-9]{0,15})(?P<unit>|Ki|Mi|Gi)")
_UNITS: Final = {"": 1, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
LABEL_PREFIX: Final = "io.harmony."


def _working_dir(value: str) -> str:
    return value if value == "/" else normal_path(value)


def _quantity(value: object) -> int | str:
    """Before the union of both types, which would name each of them in its errors."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise PydanticCustomError("WrongType", "must be a whole number of bytes, or text as 64Mi")
    if isinstance(value, str) and not _QUANTITY.fullmatch(value):
        raise PydanticCustomError(
            "InvalidQuantity", "must be bytes, or a number with Ki, Mi or Gi, as 64Mi"
        )
    if not 0 < in_bytes(value) <= MAX_GENERATION:
        raise PydanticCustomError("OutOfRange", "must be more than 0 and less than 8 PiB")
    return value


def in_bytes(quantity: int | str) -> int:
    """``64Mi`` as 67108864; an integer is bytes already."""
    if isinstance(quantity, int):
        return quantity
    match = _QUANTITY.fullmatch(quantity)
    if match is None:
        raise ValueError("no quantity")
    return int(match["number"]) * _UNITS[match["unit"]]


def _env_name(value: str) -> str:
    if not value or "=" in value:
        raise PydanticCustomError(
            "InvalidEnvName", "an environment variable's name is not empty and has no ="
        )
    return value


def _own_labels(value: Mapping[str, str]) -> Mapping[str, str]:
    if any(key.startswith(LABEL_PREFIX) for key in value):
        raise PydanticCustomError(
            "ReservedLabel", "labels that start with io.harmony. are the agent's"
        )
    return value


Quantity = Annotated[int | str, BeforeValidator(_quantity)]
WorkingDir = Annotated[Text, AfterValidator(_working_dir)]
EnvName = Annotated[Text, AfterValidator(_env_name)]
Env = Mapping[EnvName, Text]
Args = Annotated[Sequence[Text], Field(max_length=1024)]
Image = Annotated[
    Text, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
]
Capability = Annotated[str, Field(pattern=r"^(CAP_)?[A-Z_]+$", max_length=64)]
Signal = Annotated[str, Field(pattern=r"^SIG[A-Z0-9+-]+$", max_length=16)]


class PortMapping(Model):
    """A port of the device that leads to one of the container."""

    host_port: Port
    container_port: Port
    protocol: Literal["tcp", "udp"] = "tcp"
    host_ip: Annotated[Text, Field(pattern=r"^[0-9A-Fa-f.:]*$", max_length=45)] = Field(
        default="", description="An address of the device; empty is all of them."
    )


class Mount(Model):
    """A bind of a path of the device, a named volume, or a tmpfs, at `target` in the container."""

    type: Literal["bind", "volume", "tmpfs"]
    target: Path
    source: Annotated[Text, Field(min_length=1, max_length=4095)] | None = None
    read_only: bool = False
    size: Quantity | None = Field(default=None, description="Of a tmpfs.")

    @model_validator(mode="after")
    def _fits_its_type(self) -> Mount:
        if (self.type == "tmpfs") != (self.source is None):
            raise PydanticCustomError(
                "FieldNotForType", "a bind or a volume needs a source, a tmpfs has none"
            )
        if self.type == "bind":
            try:
                normal_path(self.source or "")
            except PydanticCustomError as error:
                raise fault(("source",), error.type, error.message()) from None
        if self.type == "volume" and not _NAME.fullmatch(self.source or ""):
            raise fault(("source",), "InvalidName", "must be a volume's name")
        if self.size is not None and self.type != "tmpfs":
            raise PydanticCustomError("FieldNotForType", "only a tmpfs has a size")
        return self


class Healthcheck(Model):
    """Podman's own health check: an argument list run in the container (no shell)."""

    command: Annotated[Sequence[Text], Field(min_length=1, max_length=256)]
    interval_seconds: Period = 30
    timeout_seconds: Period = 30
    start_period_seconds: Seconds = 0
    retries: Threshold = 3


class InitContainer(Model):
    """Runs to its end, with exit code 0, before the container starts; has its mounts unless it sets
    some.
    """

    name: Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=63)]
    image: Image | None = Field(default=None, description="None: the container's own.")
    command: Args | None = None
    args: Args | None = None
    env: Env = Field(default_factory=dict, repr=False)
    mounts: Annotated[Sequence[Mount], Field(max_length=64)] | None = None
    user: Annotated[Text, Field(max_length=64)] | None = None
    timeout_seconds: Period = 300


class Container(Score):
    """A container that podman runs under this name.

    Example: ``Container(name="web", image="localhost/busybox", command=["httpd", "-f"])``
    """

    restarts = True

    kind: Literal["Container"] = "Container"
    image: Image
    command: Args | None = Field(default=None, description="Replaces the image's entrypoint.")
    args: Args | None = Field(
        default=None, description="Replaces the image's command: arguments to the entrypoint."
    )
    env: Env = Field(default_factory=dict, repr=False)
    env_files: Annotated[Sequence[Path], Field(max_length=16)] = Field(
        default=(),
        description="Files of NAME=value lines on the device, read when the container is made; env wins.",
    )
    ports: Annotated[Sequence[PortMapping], Field(max_length=128)] = ()
    mounts: Annotated[Sequence[Mount], Field(max_length=64)] = ()
    network: (
        Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=63)] | None
    ) = Field(
        default=None, description="host, none, or a network's name; None is podman's default."
    )
    user: Annotated[Text, Field(max_length=64)] | None = None
    working_dir: WorkingDir | None = None
    hostname: (
        Annotated[Text, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$", max_length=63)] | None
    ) = None
    labels: Annotated[Mapping[Text, Text], AfterValidator(_own_labels)] = Field(
        default_factory=dict
    )
    restart: Literal["always", "on-failure", "never"] = "always"
    state: Literal["running", "stopped"] = "running"
    pull: Literal["missing", "always", "never"] = "missing"
    stop_signal: Signal | None = None
    stop_grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    memory: Quantity | None = None
    cpus: Annotated[float, Field(gt=0, le=1024), WHOLE] | None = None
    pids: Annotated[int, Field(ge=1, le=4_194_304)] | None = None
    cap_add: Annotated[Sequence[Capability], Field(max_length=64)] = ()
    cap_drop: Annotated[Sequence[Capability], Field(max_length=64)] = ()
    read_only: bool = False
    no_new_privileges: bool = False
    init_containers: Annotated[Sequence[InitContainer], Field(max_length=16)] = ()
    healthcheck: Healthcheck | None = None
    readiness: Probe | None = None
    liveness: Probe | None = None

    @model_validator(mode="after")
    def _holds_together(self) -> Container:
        if not _NAME.fullmatch(self.name):
            raise fault(
                ("name",), "InvalidContainerName", "must be of A-Z a-z 0-9 . _ - for podman"
            )
        twice = repeated([mount.target for mount in self.mounts])
        if twice is not None:
            raise fault(
                ("mounts", twice, "target"), "DuplicateMount", "another mount has this target"
            )
        twice = repeated([(port.host_ip, port.host_port, port.protocol) for port in self.ports])
        if twice is not None:
            raise fault(
                ("ports", twice, "host_port"),
                "DuplicatePort",
                "another port has this port of the device",
            )
        twice = repeated([init.name for init in self.init_containers])
        if twice is not None:
            raise fault(
                ("init_containers", twice, "name"), "DuplicateResource", "another one has this name"
            )
        return self
