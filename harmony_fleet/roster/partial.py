"""Change a roster without a round trip of all of it: untouched devices are left out. Pure.

The text is cut into three parts: the text before the devices, the lines of each device with the
comments before them, and the rest. The touched devices are changed with their comments in a small
roster, and then put back between the lines that stay. The result is read again and must say what it
should. If it doesn't, or if the text isn't plain, the answer is None, and the whole roster makes
the round trip.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import yaml

from harmony_fleet.manifests.read_yaml import UNUSUAL, quick

Rewrite = Callable[[str, int], str]
"""A roster's text after the change, with lists indented by so many spaces."""
_SECTION: Final = "devices"
_BETWEEN: Final = re.compile(r" *(?:#.*)?\n?")


@dataclass(frozen=True, slots=True)
class Cut:
    """A roster's text in pieces, and what it says. `column` is where the devices' dashes stand.

    `between` are the comments and empty lines before the next section.
    """

    before: str
    chunks: dict[str, str]
    between: str
    after: str
    value: dict[str, Any]
    column: int


def edited(text: str, names: Collection[str], rewrite: Rewrite) -> str | None:
    """Return the text after `rewrite`, which touches only devices of `names`. None if that isn't
    certain.
    """
    cut = cut_up(text)
    if cut is None:
        return None
    anchor = next((name for name in cut.chunks if name not in names), None)
    if anchor is None:
        return None  # a list without devices has no place in its text
    # The anchor stands last and nothing follows it, so that no comment goes with what is removed.
    touched = "".join(chunk for name, chunk in cut.chunks.items() if name in names)
    new = cut_up(rewrite(cut.before + touched + cut.chunks[anchor] + cut.after, cut.column))
    if new is None:
        return None
    chunks = {
        name: chunk if name == anchor or name not in names else new.chunks[name]
        for name, chunk in cut.chunks.items()
        if name not in names or name in new.chunks
    }
    chunks |= {name: chunk for name, chunk in new.chunks.items() if name not in cut.chunks}
    made = new.before + "".join(chunks.values()) + cut.between + new.after
    return made if quick(made) == _expected(cut, new, names) else None


def _expected(cut: Cut, new: Cut, names: Collection[str]) -> dict[str, Any]:
    """Return the expected value of the new text: touched devices as they are now, the others as
    before.
    """
    old = {device["name"]: device for device in cut.value[_SECTION]}
    now = {device["name"]: device for device in new.value[_SECTION]}
    kept = [now.get(name) if name in names else device for name, device in old.items()]
    devices = [device for device in kept if device is not None]
    return {
        **new.value,
        _SECTION: devices + [device for name, device in now.items() if name not in old],
    }


def cut_up(text: str) -> Cut | None:
    """The pieces of a roster that is written plainly, with a device a chunk."""
    value = quick(text)
    devices = value.get(_SECTION) if isinstance(value, dict) and value is not UNUSUAL else None
    if not isinstance(devices, list) or not all(isinstance(device, dict) for device in devices):
        return None
    names = [device.get("name") for device in devices]
    if not names or len({name for name in names if isinstance(name, str)}) != len(names):
        return None
    places = _places(text)
    if places is None:
        return None
    column, starts = places
    lines = text.splitlines(keepends=True)
    if any(lines[start][:column].strip() or lines[start][column] != "-" for start in starts[:-1]):
        return None
    bounds = [_with_comments(lines, start) for start in starts]
    pieces = ["".join(lines[one:next_]) for one, next_ in pairwise(bounds)]
    chunks = dict(zip(names, pieces, strict=True))
    between, after = "".join(lines[bounds[-1] : starts[-1]]), "".join(lines[starts[-1] :])
    return Cut("".join(lines[: bounds[0]]), chunks, between, after, value, column)


def _with_comments(lines: list[str], start: int) -> int:
    """The comments and empty lines before a line belong to it."""
    while start > 0 and _BETWEEN.fullmatch(lines[start - 1]):
        start -= 1
    return start


def _places(text: str) -> tuple[int, list[int]] | None:
    """The column of the devices' dashes, and their lines, with that of what comes after them at the
    end.
    """
    root = yaml.compose(text, Loader=yaml.CBaseLoader)
    sections = root.value if isinstance(root, yaml.MappingNode) else []
    after = [key.start_mark.line for key, _ in sections[1:]] + [len(text.splitlines())]
    for (key, value), end in zip(sections, after, strict=True):
        if key.value == _SECTION and isinstance(value, yaml.SequenceNode) and not value.flow_style:
            return value.start_mark.column, [*(item.start_mark.line for item in value.value), end]
    return None
