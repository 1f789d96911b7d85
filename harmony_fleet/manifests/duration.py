"""Spans of time as people write them: ``60s``, ``2m``, ``1m30s``, ``2h``, ``90``. Pure."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|s|m|h|d))+|\d{1,9}(?:\.\d{1,9})?")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|)")


def seconds(text: str) -> float | None:
    """Parse a span of time to seconds. None if it isn't one."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit or "s"] for number, unit in _PART.findall(text))
