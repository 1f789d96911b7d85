"""Env files: NAME=value, a line each, taken literally; and which of them may be read. Pure; names
lines, never values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harmony_agent.core.actions import Wait
from harmony_agent.core.frozen import frozen
from harmony_agent.core.paths import PathSet
from scores.manifest import FieldError


@frozen()
class EnvFilePolicy:
    """Folders under which env files may be read, and what none of them may touch."""

    roots: Sequence[str]
    closed: PathSet

    def violations(self, paths: Sequence[str]) -> Iterator[FieldError]:
        """Paths of the field ``env_files`` that are outside the roots, or closed."""
        for index, path in enumerate(paths):
            if not any(path.startswith(f"{root.rstrip('/')}/") for root in self.roots):
                yield FieldError(f"env_files[{index}]", "PathOutsideRoots")
            elif self.closed.touched_by(path):
                yield FieldError(f"env_files[{index}]", "PathForbidden")


def missing(paths: Sequence[str], digests: Mapping[str, str | None]) -> Wait | None:
    """Wait for the first of `paths` that couldn't be read. None if all could."""
    path = next((path for path in paths if not digests.get(path)), None)
    text = f"cannot read {path}: make the file, or take it out"
    return None if path is None else Wait("EnvFileMissing", text, "Blocked", 5.0)


class BadEnvFile(ValueError):
    """A line of an env file isn't NAME=value. Names the line, never its content."""


def parse_env(path: str, content: bytes) -> dict[str, str]:
    """The variables of an env file; # and blank lines are skipped."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise BadEnvFile(f"{path} is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, value = line.lstrip().removesuffix("\r").partition("=")
        if not equals or not name.strip() or "\0" in line:
            raise BadEnvFile(f"line {number} of {path} is not NAME=value")
        found[name.strip()] = value
    return found
