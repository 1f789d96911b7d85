"""Container: the ports, mounts, networks and the health check that it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Model, fault, is_new
from scores.container_surroundings import (
    Domain,
    check_address,
)
from scores.container_values import LEAST_TMPFS, Quantity, check_least, is_engine_name
from scores.file import Mode, Path, normal_path
from scores.names import Text
from scores.probes import Period, Port, Seconds, Threshold
from scores.secrets import Secret, SecretName


class PortMapping(Model):
    """A port of the device that leads to one of the container."""

    host_port: Port = Field(description="The port of the device.", examples=[8080])
    container_port: Port = Field(description="The port in the container.", examples=[80])
    protocol: Literal["tcp", "udp"] = Field(default="tcp", description="The port's protocol.")
    host_ip: Annotated[Text, Field(pattern=r"^[0-9A-Fa-f.:]*$", max_length=45)] = Field(
        default="",
        description="An address of the device; empty is all of them.",
        examples=["127.0.0.1"],
    )


class Mount(Model):
    """A bind of a path of the device, a named volume, or a tmpfs, at `target` in the container."""

    type: Literal["bind", "volume", "tmpfs"] = Field(
        description="bind: a path of the device; volume: a named volume of podman; "
        "tmpfs: memory, empty at each start."
    )
    target: Path = Field(description="The path in the container.", examples=["/data"])
    source: Annotated[Text, Field(min_length=1, max_length=4095)] | None = Field(
        default=None,
        description="Of a bind the device's absolute path, of a volume its name; a tmpfs has none.",
        examples=["/srv/web", "web-data"],
    )
    read_only: bool = Field(default=False, description="The container can't write there.")
    chown: bool = Field(
        default=False,
        description="Before each start everything there is given to the container's user.",
    )
    size: Quantity | None = Field(
        default=None,
        description="How large a tmpfs may become: bytes, or a number with Ki, Mi or Gi. "
        "None: half of the device's memory.",
        examples=["16Mi"],
    )

    @model_validator(mode="after")
    def _fits_its_type(self, info: ValidationInfo) -> Mount:
        if (self.type == "tmpfs") != (self.source is None):
            raise PydanticCustomError(
                "FieldNotForType", "a bind or a volume needs a source, a tmpfs has none"
            )
        if self.type == "bind":
            try:
                normal_path(self.source or "")
            except PydanticCustomError as error:
                raise fault(("source",), error.type, error.message()) from None
        if self.type == "volume" and not is_engine_name(self.source or ""):
            raise fault(("source",), "InvalidName", "must be a volume's name")
        if self.size is not None and self.type != "tmpfs":
            raise PydanticCustomError("FieldNotForType", "only a tmpfs has a size")
        if is_new(info):
            check_least(self.size, "size", LEAST_TMPFS)
        return self


class SecretMount(Model):
    """A secret as a file in memory, which the container can read and not write."""

    secret: SecretName = Field(description="The secret's name.", examples=["mqtt-password"])
    target: Path | None = Field(
        default=None,
        description="The file's path in the container. None: /run/secrets/ and the name.",
        examples=["/etc/mosquitto/password"],
    )
    mode: Mode = Field(
        default="0400",
        description="Four octal digits, in quotes. The file is the agent's user's, who is root in a "
        "rootless container; 0444 is for another user in it.",
        examples=["0444"],
    )

    @property
    def place(self) -> str:
        """Its path in the container."""
        return self.target or f"/run/secrets/{self.secret}"


class NetworkAttachment(Model):
    """A network that the container is in."""

    name: Annotated[Text, Field(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_.-]*$", max_length=63)] = Field(
        description="The network's name.", examples=["home"]
    )
    aliases: Annotated[Sequence[Domain], Field(max_length=16)] = Field(
        default=(),
        description="Names besides its own by which others in the network find it.",
        examples=[["mqtt"]],
    )
    address: Annotated[Text, Field(max_length=45), AfterValidator(check_address)] | None = Field(
        default=None,
        description="Its fixed address there. None: a free one.",
        examples=["10.89.5.10"],
    )

    @model_validator(mode="after")
    def _is_a_network(self) -> NetworkAttachment:
        if self.name in ("host", "none"):
            raise fault(("name",), "FieldConflict", "host and none stand alone, in network")
        return self


class RegistryLogin(Model):
    """Account at the registry of the container's image."""

    user: Annotated[Text, Field(min_length=1, max_length=255, pattern=r"^[^:]+$")] = Field(
        description="The account's name.", examples=["fleet"]
    )
    password: Secret = Field(
        description="The secret that is its password or token.",
        examples=[{"secret": "registry-password"}],
    )


class Healthcheck(Model):
    """Podman's own health check: an argument list run in the container (no shell)."""

    command: Annotated[Sequence[Text], Field(min_length=1, max_length=256)] = Field(
        description="The argument list; exit code 0 is healthy.", examples=[["pg_isready", "-q"]]
    )
    interval_seconds: Period = Field(
        default=30, description="Seconds from one check to the next.", examples=[30]
    )
    timeout_seconds: Period = Field(
        default=30, description="Seconds after which a check has failed.", examples=[5]
    )
    start_period_seconds: Seconds = Field(
        default=0,
        description="Seconds from the start in which a failure doesn't count.",
        examples=[20],
    )
    retries: Threshold = Field(
        default=3, description="Failures in a row that make it unhealthy.", examples=[3]
    )
