"""TOML that a person wrote: read, or refused with line and column. Pure."""

from __future__ import annotations

import tomllib
import traceback
from typing import Any

from scores.canonical import place_of


class NotToml(ValueError):
    """The bytes are no TOML; the message says why and where, and repeats no value."""


def read_toml(data: bytes) -> dict[str, Any]:
    """Parse a file's bytes. Raises NotToml for every error of the library."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotToml(f"not UTF-8 {place_of(data, error.start)}") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise NotToml(str(error)) from None
    except RecursionError as error:
        raise NotToml(f"nested too deeply {_place(text, error)}") from None
    except ValueError as error:  # an integer of more digits than Python converts
        raise NotToml(f"no value that can be used {_place(text, error)}") from None


def _place(text: str, error: Exception) -> str:
    """The place where the parser was: only its innermost frame knows it."""
    found = [frame.f_locals.get("pos") for frame, _ in traceback.walk_tb(error.__traceback__)]
    return place_of(text, next((at for at in reversed(found) if isinstance(at, int)), 0))
