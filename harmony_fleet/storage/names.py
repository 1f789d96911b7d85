"""Names of the last answers and of the roster, for the shell's completion: ``names.json`` in the home.

A key press reads it, so this imports the standard library alone. Nothing depends on it: what is
damaged is as if it weren't there, and the next answer writes it anew.
"""

# ruff: noqa: PLC0415 - what writes is imported when something is written

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

_FILE: Final = "names.json"
_MOST: Final = 10_000
"""Names of a sort: a key press has to read them."""
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@:/-]{0,319}")
"""A name is a device's own word, and a shell evaluates what it is offered: others aren't kept."""
Names = Mapping[str, Iterable[str]]


def known(home: Path, sort: str) -> list[str]:
    """The names of a sort (``devices``, ``deployments``, ``resources``), those of the roster too."""
    names = _read(home)
    return sorted(names.get(sort, set()) | names.get(f"roster_{sort}", set()))


def remember(home: Path, names: Names) -> None:
    """Add these to the names of their sorts."""
    _change(home, lambda old: {sort: old.get(sort, set()) | {*new} for sort, new in names.items()})


def forget(home: Path, names: Names) -> None:
    """Offer these no more."""
    _change(home, lambda old: {sort: old.get(sort, set()) - {*new} for sort, new in names.items()})


def remember_roster(home: Path, names: Names) -> None:
    """These are all that the roster has."""
    _change(home, lambda _old: {f"roster_{sort}": {*new} for sort, new in names.items()})


def _read(home: Path) -> dict[str, set[str]]:
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        found = json.loads((home / _FILE).read_bytes())
        if isinstance(found, dict):
            return {sort: _safe(names) for sort, names in found.items() if isinstance(names, list)}
    return {}


def _safe(names: Iterable[object]) -> set[str]:
    return {name for name in names if isinstance(name, str) and _SAFE.fullmatch(name)}


def _change(home: Path, change: Callable[[dict[str, set[str]]], dict[str, set[str]]]) -> None:
    old = _read(home)
    new = {sort: set(sorted(_safe(names))[:_MOST]) for sort, names in change(old).items()}
    made = old | {sort: names for sort, names in new.items() if names or sort in old}
    if made != old and home.is_dir():
        from harmony_fleet.storage import durable

        text = json.dumps({sort: sorted(names) for sort, names in made.items()})
        with contextlib.suppress(OSError):
            durable.replace(str(home / _FILE), text.encode())
