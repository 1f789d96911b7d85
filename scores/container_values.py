"""Container: the values that its fields take: quantities, names, words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from scores.base import fault
from scores.file import normal_path
from scores.names import MAX_GENERATION, Text
from scores.secrets import TextOrSecret

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_QUANTITY: Final = re.compile(r"(?P<number>[1-9][0-9]{0,15})(?P<unit>|Ki|Mi|Gi)")
_UNITS: Final = {"": 1, "Ki": 1024, "Mi": 1024**2, "Gi": 1024**3}
LABEL_PREFIX: Final = "io.harmony."
LEAST_MEMORY: Final = "4Mi"
"""No container starts with less."""
LEAST_TMPFS: Final = "64Ki"


def is_engine_name(name: str) -> bool:
    """Return whether podman takes the name."""
    return _NAME.fullmatch(name) is not None


def check_engine_name(name: str) -> None:
    """Refuse a name that podman doesn't take."""
    if not is_engine_name(name):
        raise fault(("name",), "InvalidContainerName", "must be of A-Z a-z 0-9 . _ - for podman")


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


def check_least(quantity: int | str | None, field: str, least: str) -> None:
    """Refuse less than anything needs: nearly always a number whose unit was forgotten."""
    if quantity is None or in_bytes(quantity) >= in_bytes(least):
        return
    meant = f"{str(quantity).rstrip('KMi')}Mi"
    guess = f"; did you mean {meant}?" if in_bytes(meant) >= in_bytes(least) else ""
    raise fault((field,), "OutOfRange", f"must be at least {least}: a bare number is bytes{guess}")


def _env_name(value: str) -> str:
    if not value or "=" in value:
        raise PydanticCustomError(
            "InvalidEnvName", "an environment variable's name is not empty and has no ="
        )
    return value


def own_labels(value: Mapping[str, str]) -> Mapping[str, str]:
    """Refuse the agent's own labels."""
    if any(key.startswith(LABEL_PREFIX) for key in value):
        raise PydanticCustomError(
            "ReservedLabel", "labels that start with io.harmony. are the agent's"
        )
    return value


def registry_of(image: str) -> str:
    """The registry that an image's name says; "" where the device's configuration chooses one."""
    first, slash, _ = image.partition("/")
    named = first == "localhost" or any(sign in first for sign in ".:")
    return first if slash and named else ""


def _window(value: str) -> str:
    begin, end = window_minutes(value)
    if begin == end:
        raise PydanticCustomError("OutOfRange", "begins and ends at the same minute")
    return value


def window_minutes(window: str) -> tuple[int, int]:
    """Begin and end of ``02:00-05:00``, in minutes of the day."""
    begin, _, end = window.partition("-")
    return _minutes(begin), _minutes(end)


def _minutes(time: str) -> int:
    hours, _, minutes = time.partition(":")
    return int(hours) * 60 + int(minutes)


_TIME: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
DayWindow = Annotated[Text, Field(pattern=f"^{_TIME}-{_TIME}$"), AfterValidator(_window)]
"""A part of each day, that may go over midnight."""
Quantity = Annotated[int | str, BeforeValidator(_quantity)]
WorkingDir = Annotated[Text, AfterValidator(_working_dir)]
EnvName = Annotated[Text, AfterValidator(_env_name)]
Env = Mapping[EnvName, Text]
SecretEnv = Mapping[EnvName, TextOrSecret]
Args = Annotated[Sequence[Text], Field(max_length=1024)]
Image = Annotated[
    Text, Field(min_length=1, max_length=512, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$")
]
Capability = Annotated[str, Field(pattern=r"^(CAP_)?[A-Z_]+$", max_length=64)]
Signal = Annotated[str, Field(pattern=r"^SIG[A-Z0-9+-]+$", max_length=16)]
