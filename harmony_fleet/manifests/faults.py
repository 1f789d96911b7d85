"""Faults of a manifest, told to its author: where, of which resource, what was probably meant, and
what the field takes. No message holds a value.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel

from harmony_fleet.errors import InvalidInput, Line
from scores.author_schema import model_of
from scores.manifest import SCORE_TYPES, Fault, InvalidManifest, Manifest, field_path
from scores.names import is_resource_name

Find = Callable[[Sequence[int | str], str], Line | None]
"""The line of a place, by its parts and the fault's code."""
_TOP: Final = ("scores", "remains")
_FIELDS: Final = "see the fields with: harmony schema"


def nowhere(_place: Sequence[int | str], _code: str) -> None:
    """No text to show a line of."""


def refusal(
    message: str,
    error: InvalidManifest,
    value: Any = None,
    find: Find = nowhere,
    model: type[BaseModel] = Manifest,
) -> InvalidInput:
    """The error of a command for `error`. `value` is what was read as a `model`, and may be anything."""
    lines = [find(untagged(fault.place), fault.code) for fault in error.faults]
    details = [
        _sentence(fault, value, model, line)
        for fault, line in zip(error.faults, lines, strict=True)
    ]
    return InvalidInput(
        error.code,
        message,
        _hint(error.faults, value, model),
        error.errors,
        details=details or [str(error)],
        lines=lines,
    )


def untagged(place: Sequence[int | str]) -> list[int | str]:
    """Without the kind, which pydantic has among the parts, and without a key that is wrong itself:
    it may be a ``NAME=value``.
    """
    parts = [part for at, part in enumerate(place) if not (at == 2 and part in SCORE_TYPES)]
    return parts[:-2] if parts[-1:] == ["[key]"] else parts


def _sentence(fault: Fault, value: Any, model: type[BaseModel], line: Line | None) -> str:
    at = f"line {line.number}, column {line.column}: " if line is not None else ""
    resource = _resource(fault.place, value, model)
    field = field_path(fault.place) or "the manifest"
    guess = _guess(fault, value, model)
    meant = f"; did you mean {guess}?" if guess else ""
    return f"{at}{field}{f' ({resource})' if resource else ''}: {fault.sentence}{meant}"


def _resource(place: Sequence[int | str], value: Any, model: type[BaseModel]) -> str:
    """``File/motd``, where a fault is in a resource that has a name."""
    score = _at(value, place[:2]) if model is Manifest and place[:1] and place[0] in _TOP else value
    kind, name = (_text(score, field) for field in ("kind", "name"))
    kind = kind if kind in SCORE_TYPES else model.__name__ if model is not Manifest else ""
    if not is_resource_name(name):
        return kind if kind in SCORE_TYPES else ""
    return f"{kind}/{name}" if kind in SCORE_TYPES else name


def _at(value: Any, place: Sequence[int | str]) -> Any:
    for part in place:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, (list, tuple)) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value


def _text(value: Any, field: str) -> str:
    found = value.get(field) if isinstance(value, Mapping) else getattr(value, field, None)
    return found if isinstance(found, str) else ""


def _guess(fault: Fault, value: Any, model: type[BaseModel]) -> str:
    """The probable meaning: a field, a kind, one of the values of a field. Empty if unclear."""
    place = untagged(fault.place)
    if fault.code == "UnknownKind":
        return _kind(_at(value, place))
    owner = model_of(model, fault.place, value)
    name = str(place[-1]) if place else ""
    if owner is None or not name:
        return ""
    if fault.code == "UnknownField":
        return _near(name, owner.model_fields)
    if fault.code == "NotAllowed" and name in owner.model_fields:
        return _near(str(_at(value, place)), _choices(owner.model_fields[name].annotation))
    return ""


def _kind(score: Any) -> str:
    """By its own word, else by the fields that it has."""
    near = _near(_text(score, "kind"), SCORE_TYPES)
    if near or not isinstance(score, Mapping) or "kind" in score:
        return near
    common = set.intersection(*(set(kind.model_fields) for kind in SCORE_TYPES.values()))
    fits = {
        name: len((set(kind.model_fields) - common) & {str(key) for key in score})
        for name, kind in SCORE_TYPES.items()
    }
    best = max(fits, key=lambda name: fits[name])
    clear = fits[best] and list(fits.values()).count(fits[best]) == 1
    return f"kind: {best}" if clear else ""


def _near(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), lower, n=1, cutoff=0.6)
    return lower[found[0]] if found else ""


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [part for part in get_args(annotation) if isinstance(part, str)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _hint(faults: Sequence[Fault], value: Any, model: type[BaseModel]) -> str:
    """The description of the first field that a fault is about."""
    for fault in sorted(faults, key=lambda fault: fault.code != "UnknownField"):  # the cause first
        owner = model_of(model, fault.place, value)
        name = str(untagged(fault.place)[-1]) if fault.place else ""
        if fault.code == "UnknownField" and owner in SCORE_TYPES.values():
            return f"{_FIELDS} --kind {owner.__name__}" if owner else _FIELDS
        field = owner.model_fields.get(name) if owner is not None else None
        if field is not None and field.description:
            examples = f" As {field.examples[0]!r}." if field.examples else ""
            return f"{name}: {field.description}{examples}"
    return _FIELDS
