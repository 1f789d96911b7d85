"""Variables of a device in a deployment's raw Scores: typed values and plain text with names in it.
Pure.

``{$var: http_port}`` becomes that variable's value with its type; ``{$text: "listen
${http_port}\\n"}`` becomes text, with ``$$`` for a dollar sign before a brace. Nothing else is
touched, and nothing is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from scores.manifest import FieldError

_USE: Final = re.compile(r"\$\$(?=\{)|\$\{([^{}]*)\}")
_VAR, _TEXT = "$var", "$text"

Scalar = str | int | float | bool


def uses(value: Any) -> bool:
    """Return whether `value` holds a variable anywhere."""
    if isinstance(value, Mapping):
        return bool({_VAR, _TEXT} & value.keys()) or any(map(uses, value.values()))
    return isinstance(value, (list, tuple)) and any(map(uses, value))


def fill(value: Any, known: Mapping[str, Scalar], place: str, where: str) -> Any:
    """`value` with its variables filled in. `place` is its field, `where` the deployment and
    device, for errors.

    Raises InvalidInput that names a variable, never a value.
    """
    if isinstance(value, Mapping):
        if len(value) == 1 and _VAR in value:
            return _one(value[_VAR], known, place, where)
        if len(value) == 1 and _TEXT in value:
            return _text(value[_TEXT], known, place, where)
        return {key: fill(item, known, f"{place}.{key}", where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [fill(item, known, f"{place}[{at}]", where) for at, item in enumerate(value)]
    return value


def _one(name: Any, known: Mapping[str, Scalar], place: str, where: str) -> Scalar:
    if not isinstance(name, str) or name not in known:
        shown = name if isinstance(name, str) and name.isprintable() and len(name) <= 80 else "?"
        raise InvalidInput(
            "VariableMissing",
            f"cannot project {where}: it has no variable {shown}",
            "set it with: harmony fleet device set <device> --variable name=value",
            [FieldError(place, "VariableMissing")],
        )
    return known[name]


def _text(template: Any, known: Mapping[str, Scalar], place: str, where: str) -> str:
    if not isinstance(template, str):
        raise InvalidInput(
            "WrongType",
            f"cannot project {where}: $text takes text",
            "quote it",
            [FieldError(place, "WrongType")],
        )
    return "".join(_parts(template, known, place, where))


def _parts(template: str, known: Mapping[str, Scalar], place: str, where: str) -> Iterator[str]:
    at = 0
    for use in _USE.finditer(template):
        yield template[at : use.start()]
        at = use.end()
        yield "$" if use[1] is None else _spelt(_one(use[1], known, place, where))
    yield template[at:]


def _spelt(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
