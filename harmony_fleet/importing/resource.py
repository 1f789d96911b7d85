"""A resource that is being made from somebody else's file, and what couldn't be taken over.

`take` is the only way in: an option either changes the resource, or leaves a note.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

MAX_NOTE: Final = 300


class NotTakenError(Exception):
    """An option can't be taken over; the text says why."""


@dataclass(frozen=True, slots=True)
class Place:
    """Surroundings of the file that is read.

    `folder` is the one that it lies in; `there` is the device's folder that relative paths begin at.
    `docker` is whether short names of images are Docker Hub's. `names` are names of volumes and
    networks as the device has them, by those in the file.
    """

    folder: Path
    there: str
    docker: bool = False
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Resource:
    """A Score to be: its fields as YAML has them, and notes of what isn't in them."""

    kind: str
    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def note(self, what: str, why: str) -> None:
        """Say why `what` isn't in the fields."""
        text = one_line(f"{what}: {why}")
        if text not in self.notes:
            self.notes.append(text)

    def set(self, name: str, value: Any) -> None:
        """Set a field."""
        self.fields[name] = value

    def add(self, name: str, item: Any) -> None:
        """Append to a field that is a list."""
        if item in self.fields.setdefault(name, []):
            raise NotTakenError("it stands there twice")
        self.fields[name].append(item)

    def put(self, name: str, key: str, value: Any) -> None:
        """Set one value of a field that has names."""
        self.fields.setdefault(name, {})[key] = value


Handler = Callable[[Resource, Place, str], None]
"""Takes one option with its value; raises NotTakenError."""


def take(
    resource: Resource,
    place: Place,
    shown: str,
    handler: Handler | None,
    value: str,
    *,
    why: str = "",
) -> None:
    """Take one option, which the file calls `shown`. It leaves a change or a note, always."""
    before = copy.deepcopy(resource.fields), len(resource.notes)
    # Of a variable its name alone: a comment is no place for its value.
    shown = f"{shown} {value.partition('=')[0] if 'env' in shown.lower() else value}".strip()
    if handler is None:
        resource.note(shown, why or "Harmony has no field for it")
        return
    try:
        handler(resource, place, value)
    except NotTakenError as error:
        resource.fields = before[0]
        resource.note(shown, str(error))
        return
    if (resource.fields, len(resource.notes)) == before:
        resource.note(shown, "it changes nothing here")


def one_line(text: str) -> str:
    """`text` as a comment can hold it."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    return " ".join(shown.split())[:MAX_NOTE]
