"""Hardware of the device that a container may have, and guards around it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from scores.base import Model
from scores.file import Path, normal_path
from scores.names import Text

_RULE: Final = re.compile(
    r"(?P<type>[abc]) (?P<major>\*|[0-9]{1,9}):(?P<minor>\*|[0-9]{1,9}) (r?w?m?)"
)
_ACCESS: Final = re.compile(r"r?w?m?")
_LABEL: Final = re.compile(r"disable|(user|role|type|level):[A-Za-z0-9_.:,-]+")


def _node(value: str) -> str:
    if not value.startswith("/dev/"):
        raise PydanticCustomError("InvalidDevicePath", "must be below /dev, as /dev/ttyUSB0")
    return value


def _access(value: str) -> str:
    if not value or not _ACCESS.fullmatch(value):
        raise PydanticCustomError("InvalidDeviceAccess", "must be of r, w and m, as rw")
    return value


def _rule(value: str) -> str:
    match = _RULE.fullmatch(value)
    if match is None or not match[4]:
        raise PydanticCustomError(
            "InvalidDeviceRule", "must be type, numbers and access, as c 189:* rwm"
        )
    return value


def rule_parts(rule: str) -> tuple[str, int | None, int | None, str]:
    """Type, major, minor and access of ``c 189:* rwm``; None is every number."""
    match = _RULE.fullmatch(rule)
    if match is None:
        raise ValueError("no rule")
    major, minor = (None if part == "*" else int(part) for part in (match[2], match[3]))
    return match["type"], major, minor, match[4]


def _label(value: str) -> str:
    if not _LABEL.fullmatch(value):
        raise PydanticCustomError(
            "InvalidSecurityLabel", "must be disable, or user, role, type or level with a value"
        )
    return value


def _unmasked(value: str) -> str:
    return value if value == "ALL" else normal_path(value)


def _seccomp(value: str) -> str:
    return value if value == "unconfined" else normal_path(value)


DevicePath = Annotated[Path, AfterValidator(_node)]
DeviceRule = Annotated[Text, Field(max_length=32), AfterValidator(_rule)]
DeviceRules = Annotated[Sequence[DeviceRule], Field(max_length=32)]


class DeviceMapping(Model):
    """A node below /dev that the container may use: a serial adapter, a camera, a GPIO chip."""

    source: DevicePath = Field(
        description="The node's path. A name that stays, as below /dev/serial/by-id, is resolved "
        "when the container is made; another node there makes it anew.",
        examples=["/dev/serial/by-id/usb-Itead_Sonoff_Zigbee-if00-port0", "/dev/ttyUSB0"],
    )
    target: DevicePath | None = Field(
        default=None,
        description="The path in the container; None: the same.",
        examples=["/dev/ttyUSB0"],
    )
    access: Annotated[Text, AfterValidator(_access)] = Field(
        default="rwm",
        description="r to read, w to write, m to make nodes of it.",
        examples=["rw"],
    )


Devices = Annotated[Sequence[DeviceMapping], Field(max_length=64)]


class SecurityOptions(Model):
    """Guards of the kernel around the container, where they are not to be podman's own."""

    label: Annotated[
        Sequence[Annotated[Text, Field(max_length=256), AfterValidator(_label)]],
        Field(max_length=8),
    ] = Field(
        default=(),
        description="SELinux: disable, or user, role, type and level.",
        examples=[["disable"]],
    )
    seccomp: Annotated[Text, Field(max_length=4095), AfterValidator(_seccomp)] | None = Field(
        default=None,
        description="unconfined, or the path of a profile, which podman reads when it makes the "
        "container. None: podman's own profile.",
        examples=["unconfined"],
    )
    apparmor: Annotated[Text, Field(pattern=r"^[A-Za-z0-9_./-]+$", max_length=256)] | None = Field(
        default=None,
        description="unconfined, or the name of a profile that is loaded. None: podman's own.",
        examples=["unconfined"],
    )
    mask: Annotated[Sequence[Path], Field(max_length=32)] = Field(
        default=(),
        description="More paths that can't be seen in the container.",
        examples=[["/proc/uptime"]],
    )
    unmask: Annotated[
        Sequence[Annotated[Text, AfterValidator(_unmasked)]], Field(max_length=32)
    ] = Field(
        default=(),
        description="Paths that podman would mask, and doesn't; ALL is each of them.",
        examples=[["/proc/acpi"]],
    )


LogDriver = Literal["journald", "k8s-file", "none"]
