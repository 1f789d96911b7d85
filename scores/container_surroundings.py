"""Surroundings of a container besides its files: users, limits, names, time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Model
from scores.names import Text

_MOST: Final = 2**63 - 1
KEEP_GROUPS: Final = "keep-groups"


def _groups(value: Sequence[str]) -> Sequence[str]:
    if KEEP_GROUPS in value and len(value) > 1:
        raise PydanticCustomError("FieldConflict", "keep-groups stands alone")
    return value


def check_address(value: str) -> str:
    """Check an IP address."""
    try:
        ip_address(value)
    except ValueError:
        raise PydanticCustomError("InvalidAddress", "must be an IP address") from None
    return value


def _host_address(value: str) -> str:
    return value if value == "host-gateway" else check_address(value)


def _zone(value: str) -> str:
    if value.startswith("/") or not {"", ".", ".."}.isdisjoint(value.split("/")):
        raise PydanticCustomError("InvalidTimezone", "must be a time zone, as Europe/Berlin")
    return value


Group = Annotated[Text, Field(pattern=r"^([0-9]{1,10}|[a-z_][a-z0-9_-]*)$", max_length=32)]
Groups = Annotated[Sequence[Group], Field(max_length=32), AfterValidator(_groups)]
Userns = Annotated[
    Text,
    Field(
        pattern=r"^(keep-id(:uid=[0-9]{1,10},gid=[0-9]{1,10})?|auto(:size=[1-9][0-9]{0,9})?)$",
        max_length=64,
    ),
]
Sysctl = Annotated[Text, Field(pattern=r"^[a-z0-9_]+(\.[A-Za-z0-9_-]+)+$", max_length=128)]
Sysctls = Annotated[Mapping[Sysctl, Text], Field(max_length=64)]
Dns = Annotated[
    Sequence[Annotated[Text, Field(max_length=45), AfterValidator(check_address)]],
    Field(max_length=8),
]
Domain = Annotated[
    Text, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", max_length=253)
]
Domains = Annotated[Sequence[Domain], Field(max_length=8)]
Hosts = Annotated[
    Mapping[Domain, Annotated[Text, Field(max_length=45), AfterValidator(_host_address)]],
    Field(max_length=64),
]
Annotations = Annotated[
    Mapping[Annotated[Text, Field(min_length=1, max_length=253)], Text], Field(max_length=64)
]
Timezone = Annotated[
    Text, Field(pattern=r"^[A-Za-z0-9_+/.-]+$", max_length=64), AfterValidator(_zone)
]
UlimitName = Literal[
    "core",
    "cpu",
    "data",
    "fsize",
    "locks",
    "memlock",
    "msgqueue",
    "nice",
    "nofile",
    "nproc",
    "rss",
    "rtprio",
    "rttime",
    "sigpending",
    "stack",
]


LEAST_AUTO: Final = 1024
"""So many ids podman gives at least, where no size is named."""


def auto_size(userns: str | None) -> int:
    """Number of ids that ``auto`` or ``auto:size=5000`` needs; 0 of anything else."""
    mode, _, size = (userns or "").partition(":size=")
    return (int(size) if size else LEAST_AUTO) if mode == "auto" else 0


class Ulimit(Model):
    """A limit of each process in the container, in the kernel's unit."""

    soft: Annotated[int, Field(ge=0, le=_MOST)] = Field(
        description="What holds at first.", examples=[1024]
    )
    hard: Annotated[int, Field(ge=0, le=_MOST)] = Field(
        description="The most that a process may raise it to.", examples=[4096]
    )

    @model_validator(mode="after")
    def _in_order(self) -> Ulimit:
        if self.soft > self.hard:
            raise PydanticCustomError("OutOfRange", "soft must not be more than hard")
        return self


Ulimits = Mapping[UlimitName, Ulimit]
