"""Names, digests and times as they stand on the wire: one pattern each, used at every border.

Pure text rules; nothing here knows what a name stands for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Final

from pydantic import AfterValidator, StringConstraints
from pydantic_core import PydanticCustomError

_LABEL: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_RESOURCE: Final = r"[A-Za-z0-9_@:\\][A-Za-z0-9._@:\\-]*"
_UUID: Final = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z")

MAX_GENERATION: Final = 2**53 - 1
"""The largest integer that every JSON reader keeps exact."""


def matches(pattern: str | re.Pattern[str], what: str, code: str) -> AfterValidator:
    """Refuse text that isn't of this form as a whole, with `code`; `what` says the form."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise PydanticCustomError(code, what)
        return value

    return AfterValidator(check)


def unicode_text(value: str) -> str:
    """Text that has a UTF-8 form: JSON's escapes can spell half of a surrogate pair, which has
    none.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("NotUnicode", "must not contain a lone surrogate") from None
    return value


def no_nul(value: str) -> str:
    """Text that may cross into the kernel."""
    if "\0" in value:
        raise PydanticCustomError("NulInText", "must not contain a NUL character")
    return value


def _time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise PydanticCustomError(
            "InvalidTime", "must be RFC 3339 in UTC, as 2026-11-29T18:00:00.000Z"
        )
    try:
        parse_time(value)
    except ValueError as error:
        raise PydanticCustomError("InvalidTime", "is no date and time of the calendar") from error
    return value


Text = Annotated[str, AfterValidator(unicode_text), AfterValidator(no_nul)]
"""Text that may cross into the kernel: no NUL, no lone surrogate."""

DeviceName = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(_LABEL, "must be 1 to 63 of a-z 0-9 and -, not at its ends", "InvalidName"),
]
DeploymentName = DeviceName
ResourceName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=253),
    matches(
        _RESOURCE,
        "must be 1 to 253 of A-Z a-z 0-9 . _ @ : \\ -, not starting with . or -",
        "InvalidName",
    ),
]
Lineage = Annotated[str, matches(_UUID, "must be a lower-case UUID", "InvalidLineage")]
Digest = Annotated[
    str, matches(r"sha256:[0-9a-f]{64}", "must be sha256: and 64 hex digits", "InvalidDigest")
]
Identifier = Annotated[
    str,
    matches(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}",
        "must be 1 to 128 of A-Z a-z 0-9 . _ -",
        "InvalidIdentifier",
    ),
]
Time = Annotated[str, AfterValidator(_time)]


def is_resource_name(value: str) -> bool:
    """Return whether `value` may name a resource."""
    return len(value) <= 253 and re.fullmatch(_RESOURCE, value) is not None


def is_name(value: str) -> bool:
    """Return whether `value` may name a device or a deployment."""
    return len(value) <= 63 and re.fullmatch(_LABEL, value) is not None


def parse_time(value: str) -> datetime:
    """Parse a wire time to an aware UTC datetime.

    Digits below the microsecond are cut. Raises ValueError.
    """
    stem, dot, fraction = value.removesuffix("Z").partition(".")
    return datetime.fromisoformat(stem + dot + fraction[:6]).replace(tzinfo=UTC)


def format_time(moment: datetime) -> str:
    """An aware datetime as the wire writes it: UTC, millisecond precision, ``Z``."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
