"""Bytes and JSON of files that a person wrote, with each mistake as InvalidInput that names the
place and never a value.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from harmony_fleet.storage.regular import NotRegular, read_regular
from scores.canonical import NotCanonical, read
from scores.manifest import MAX_MANIFEST

MAX_FILE: Final = 16 * MAX_MANIFEST
"""Bytes of a file that are read; it may hold several manifests."""


def read_bytes(path: Path) -> bytes:
    """A regular file's bytes, at most one more than `MAX_FILE`. Raises InvalidInput."""
    try:
        return read_regular(path, MAX_FILE + 1)
    except (FileNotFoundError, NotRegular, ValueError) as error:  # ValueError: a NUL in the name
        special = isinstance(error, NotRegular)
        what = "it is no regular file" if special else "there is no such file"
        raise InvalidInput("FileMissing", f"cannot read {path}: {what}", "check the name") from None
    except OSError as error:
        raise InvalidInput(
            "FileUnreadable", f"cannot read {path}: {error.strerror}", "check its permissions"
        ) from None


def read_json(data: bytes, where: str) -> Any:
    """One JSON value. Raises InvalidInput."""
    try:
        return read(data, MAX_FILE)
    except NotCanonical as error:
        raise InvalidInput(
            error.code, f"cannot read {where}: {error}", "mend the JSON there"
        ) from None
