"""Make what was read valid: a value that no manifest may have goes, and a note says why."""

from __future__ import annotations

import re
from typing import Any, Final

from harmony_fleet.importing.resource import Resource
from scores.manifest import SCORE_TYPES, Fault, InvalidManifest, Manifest, validate
from scores.names import is_name

_ROUNDS: Final = 200
_IMAGE: Final = "localhost/unnamed"


def fitted(name: str, resources: list[Resource]) -> tuple[list[Resource], list[str]]:
    """The resources that a manifest named `name` may hold, changed in place, and notes of the
    whole.
    """
    notes: list[str] = []
    kept: list[Resource] = []
    seen: dict[str, int] = {}
    for one in resources:
        one.name = _named(one)
        key = f"{one.kind}/{one.name}"
        seen[key] = seen.get(key, 0) + 1
        if seen[key] > 1:
            one.note("name", f"another one is named {one.name}")
            one.name = f"{one.name}-{seen[key]}"
        if _fit(one):
            kept.append(one)
        else:
            notes.append(f"{key}: it can't be made valid, and is left out")
    _fit_order(name, kept)
    return kept, notes


def deployment_name(text: str) -> str:
    """A name that a deployment may have, near to `text`."""
    name = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:63].strip("-")
    return name if is_name(name) else "imported"


def _named(one: Resource) -> str:
    if one.kind not in ("Container", "Network", "Volume"):
        return one.name
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", one.name).lstrip("-_.")[:253] or "container"
    if name != one.name:
        one.note(f"name {one.name}", f"it became {name}: a name has A-Z a-z 0-9 . _ and - alone")
    return name


def value_of(one: Resource) -> dict[str, Any]:
    """The Score as YAML has it."""
    return {"kind": one.kind, "name": one.name, **one.fields}


def _fit(one: Resource) -> bool:
    health = one.fields.get("healthcheck")
    if health is not None and "command" not in health:
        one.fields.pop("healthcheck")
        one.note("healthcheck", "it needs its command here: the image's own is not known")
    for _ in range(_ROUNDS):
        try:
            validate(SCORE_TYPES[one.kind], value_of(one))
        except InvalidManifest as error:
            if not _without(one, error.faults[0]):
                return False
        else:
            return True
    return False


def _without(one: Resource, fault: Fault) -> bool:
    """Take out what a fault names. Return whether there was something to take out."""
    field, *rest = fault.place or ("",)
    if field == "image":
        one.note("image", f"{fault.sentence}: this name stands in its place")
        one.set("image", _IMAGE)
        return fault.code != "Missing" or one.fields["image"] == _IMAGE
    if not isinstance(field, str) or field not in one.fields:
        return False
    held, at = one.fields[field], rest[0] if rest else None
    inside = (isinstance(held, list) and isinstance(at, int) and at < len(held)) or (
        isinstance(held, dict) and at in held
    )
    if inside and len(held) > 1:
        gone = held.pop(at)
        one.note(f"{field} {_shown(field, at, gone)}", fault.sentence)
    else:
        gone = one.fields.pop(field)
        first = next(iter(gone), None) if isinstance(gone, (list, dict)) else gone
        one.note(f"{field} {_shown(field, first, first)}", fault.sentence)
    return True


def _shown(field: str, at: object, gone: object) -> str:
    """The thing that went, as one word or two; of an environment variable its name alone."""
    if field == "env":
        return str(at)
    if isinstance(gone, dict):
        return " ".join(str(part) for part in gone.values())
    return str(gone) if isinstance(at, int) or gone == at else f"{at} {gone}"


def _fit_order(name: str, kept: list[Resource]) -> None:
    """Take out what `after` can't be: a circle, or a resource that isn't there."""
    for _ in range(len(kept) + 1):
        value = {"deployment": name, "scores": [value_of(one) for one in kept]}
        try:
            validate(Manifest, value)
        except InvalidManifest as error:
            place = error.faults[0].place
            at = next((part for part in place if isinstance(part, int)), None)
            if at is None or "after" not in kept[at].fields:
                return
            gone = kept[at].fields.pop("after")
            kept[at].note(f"after {' '.join(gone)}", error.faults[0].sentence)
        else:
            return
