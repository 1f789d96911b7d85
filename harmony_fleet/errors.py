"""Errors for an operator, and the exit code of each. Library errors never leave their module.

A message says what cannot be done and where; `hint` says what to do next. Neither holds the content
of a File, the value of an environment variable or a credential.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from scores.manifest import FieldError


class ExitCode(IntEnum):
    """The exit codes of every command."""

    DONE = 0
    NOT_CONVERGED = 1
    INVALID = 2
    STALE = 3
    UNREACHABLE = 4
    REFUSED = 5
    INTERRUPTED = 130


_FIRST: Final = (
    ExitCode.STALE,
    ExitCode.REFUSED,
    ExitCode.UNREACHABLE,
    ExitCode.NOT_CONVERGED,
    ExitCode.INVALID,
)


def worst(codes: Iterable[ExitCode]) -> ExitCode:
    """The one code for several devices: what needs a person's decision comes before what time may
    heal.
    """
    found = set(codes)
    return next((code for code in _FIRST if code in found), ExitCode.DONE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a file; `start` and `length` say what of `text` is underlined. Counted from 1, but
    `start`.
    """

    number: int
    column: int
    text: str
    start: int
    length: int

    def drawn(self) -> list[str]:
        """As compilers show it."""
        gutter = " " * len(str(self.number))
        mark = " " * self.start + "^" * self.length
        return [f"{self.number} | {self.text}", f"{gutter} | {mark}"]


class HarmonyError(Exception):
    """An error that is told, not traced. `code` is a stable CamelCase word, `errors` name fields.

    `details` are sentences, one a mistake, where there may be several; `lines` are the lines of a
    file in which they were made, for a terminal alone. What rests on one device's
    word is `alone`: it keeps that device from what was asked for, and no other.
    """

    exit_code: ExitCode = ExitCode.NOT_CONVERGED

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        errors: Sequence[FieldError] = (),
        *,
        details: Sequence[str] = (),
        lines: Sequence[Line | None] = (),
        alone: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.errors = tuple(errors)
        self.details = tuple(details)
        self.lines = tuple(lines)
        self.alone = alone

    @property
    def share(self) -> ExitCode:
        """The exit code where others went on without that device."""
        return self.exit_code if self.exit_code is ExitCode.REFUSED else ExitCode.NOT_CONVERGED

    def as_json(self) -> dict[str, Any]:
        """The object that ``-o json`` writes to standard error."""
        lines = itertools.chain(self.lines, itertools.repeat(None))
        fields = [
            {"field": error.field, "code": error.code}
            | ({"line": line.number, "column": line.column} if line is not None else {})
            for error, line in zip(self.errors, lines, strict=False)
        ]
        message = "; ".join([self.message, *self.details])
        return {
            "error": {"code": self.code, "message": message, "hint": self.hint, "errors": fields}
        }


class InvalidInput(HarmonyError):
    """A usage or an input that is not valid."""

    exit_code = ExitCode.INVALID


class Conflict(HarmonyError):
    """Somebody else wrote: a stale generation or another lineage."""

    exit_code = ExitCode.STALE


class Unreachable(HarmonyError):
    """NATS or the device could not be reached in time."""

    exit_code = ExitCode.UNREACHABLE


class Refused(HarmonyError):
    """A guard holds it back: prune, ownership, missing capability."""

    exit_code = ExitCode.REFUSED


class DeviceFailed(HarmonyError):
    """The device answered, and said no."""

    exit_code = ExitCode.NOT_CONVERGED


_DISK: Final = {
    errno.EROFS: "mount it to be written again; a card at its end makes itself read-only",
    errno.ENOSPC: "make room there",
    errno.EDQUOT: "make room there, or raise the quota",
    errno.EACCES: "use it as its owner, or see its permissions",
    errno.EPERM: "use it as its owner, or see its attributes",
    errno.EIO: "see the kernel's log: the disk may be broken",
}


def disk_failed(error: OSError) -> InvalidInput | None:
    """The error of a file system that doesn't take or give what is asked; None for any other."""
    hint = _DISK.get(error.errno or 0)
    if hint is None:
        return None
    place = error.filename or "a file of the home"
    return InvalidInput("DiskFailed", f"cannot use {place}: {error.strerror}", hint)
