"""Env files: NAME=value, a line each, taken literally. Pure; names lines, never values."""

from __future__ import annotations


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
