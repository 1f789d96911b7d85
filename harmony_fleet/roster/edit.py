"""Changes of the roster's tree: add, set, remove items of a section. Pure; comments of what stays
stay.

What comes out is checked by the model afterwards, so nothing is checked here but that names are
there, or aren't.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import LiteralScalarString

from harmony_fleet.errors import InvalidInput

Section = Literal["devices", "deployments", "schedules"]
UNSET: Final = object()
"""As a value: the key goes."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of items of one section; no others are touched."""

    section: Section
    names: frozenset[str]
    work: Callable[[CommentedMap], None]
    also: frozenset[str] = frozenset()
    """devices that it touches besides"""

    def __call__(self, tree: CommentedMap) -> None:
        """Change the tree."""
        self.work(tree)

    @property
    def devices(self) -> frozenset[str]:
        """The devices that it touches."""
        return self.also | (self.names if self.section == "devices" else frozenset())


def add(section: Section, items: Sequence[Mapping[str, Any]]) -> Edit:
    """Append items, whose names mustn't be there yet."""

    def edit(tree: CommentedMap) -> None:
        there = _items(tree, section)
        names = {item.get("name") for item in there}
        for item in items:
            if item["name"] in names:
                raise InvalidInput(
                    "AlreadyThere",
                    f"cannot add {item['name']} to {section}: it is there",
                    f"change it with: harmony fleet {section.removesuffix('s')} set {item['name']}",
                )
            names.add(item["name"])
            there.append(_block(item))

    return Edit(section, frozenset(item["name"] for item in items), edit)


def change(section: Section, names: Sequence[str], values: Mapping[tuple[str, ...], Any]) -> Edit:
    """Set values at paths below the items, as ``("labels", "site")``; `UNSET` takes a key away, and
    a function makes a value of the one before.
    """

    def edit(tree: CommentedMap) -> None:
        for name in names:
            item = _find(tree, section, name)
            for path, value in values.items():
                _set(item, path, value)

    return Edit(section, frozenset(names), edit)


def remove(section: Section, names: Sequence[str]) -> Edit:
    """Take the items out."""

    def edit(tree: CommentedMap) -> None:
        for name in names:
            there = _items(tree, section)
            del there[there.index(_find(tree, section, name))]
        if not tree[section]:
            tree[section] = CommentedSeq()
            tree.ca.items.pop(
                section, None
            )  # comments before an empty list's brackets would be no YAML

    return Edit(section, frozenset(names), edit)


def rename(section: Section, old: str, new: str, overriding: frozenset[str]) -> Edit:
    """Give an item another name, wherever the roster names it. `overriding` are the devices that
    override fields of the deployment.
    """

    def edit(tree: CommentedMap) -> None:
        if any(item.get("name") == new for item in tree.get(section) or ()):
            raise InvalidInput(
                "AlreadyThere",
                f"cannot rename {old} to {new}: {new} is there",
                "choose another name, or remove that one first",
            )
        _find(tree, section, old)["name"] = new
        if section == "devices":
            for item in [*(tree.get("deployments") or ()), *(tree.get("schedules") or ())]:
                excluded = (item.get("select") or {}).get("exclude") or []
                excluded[:] = [new if name == old else name for name in excluded]
            return
        for item in tree.get("devices") or ():
            if old in (item.get("overrides") or {}):
                item["overrides"][new] = item["overrides"].pop(old)

    return Edit(section, frozenset({old, new}), edit, overriding)


def bump(tree: CommentedMap) -> int:
    """Exactly one more generation; which one."""
    generation = int(tree["generation"]) + 1
    tree["generation"] = generation
    return generation


def _items(tree: CommentedMap, section: Section) -> CommentedSeq:
    """The section's list; an empty one in brackets becomes one of lines."""
    found = tree.get(section)
    if not found:
        found = CommentedSeq()
        tree[section] = found
    return found  # type: ignore[no-any-return]


def _find(tree: CommentedMap, section: Section, name: str) -> CommentedMap:
    for item in tree.get(section) or ():
        if item.get("name") == name:
            return item  # type: ignore[no-any-return]
    raise InvalidInput(
        "NotFound",
        f"cannot find {name} in the roster's {section}",
        "see what there is with: harmony fleet status",
    )


def _set(item: CommentedMap, path: tuple[str, ...], value: Any) -> None:
    if value is UNSET and path[0] == "overrides":
        _take_away(item, path)
        return
    for key in path[:-1]:
        if not isinstance(item.get(key), CommentedMap):
            if value is UNSET:
                return
            item[key] = CommentedMap()
        item = item[key]
    if callable(value):
        value = value(item.get(path[-1]))
    if value is UNSET:
        item.pop(path[-1], None)
    elif (
        path[-1] not in item
        or item[path[-1]] != value
        or type(item.get(path[-1])) is not type(value)
    ):
        item[path[-1]] = _block(value)


def _take_away(item: CommentedMap, path: tuple[str, ...]) -> None:
    """Take a key away, and the mappings around it that hold nothing else."""
    found = item.get(path[0])
    if len(path) > 1 and isinstance(found, CommentedMap):
        _take_away(found, path[1:])
        if found:
            return
    item.pop(path[0], None)


def _block(value: Any) -> Any:
    """Plain values as the tree's own, text of several lines as a block."""
    if isinstance(value, Mapping):
        return CommentedMap((key, _block(item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return CommentedSeq(_block(item) for item in value)
    readable = isinstance(value, str) and all(char.isprintable() or char == "\n" for char in value)
    if readable and "\n" in value.rstrip("\n") and value == value.lstrip():
        return LiteralScalarString(value)
    return value
