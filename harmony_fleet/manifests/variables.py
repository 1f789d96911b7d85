"""Variables in a deployment's raw Scores: typed values and plain text with names in it.
Pure.

``{$var: http_port}`` becomes that variable's value with its type; ``{$text: "listen
${http_port}\\n"}`` becomes text, with ``$$`` for a dollar sign before a brace. Nothing else is
touched, and nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from scores.manifest import FieldError

_USE: Final = re.compile(r"\$\$(?=\{)|\$\{([^{}]*)\}")
_VAR, _TEXT = "$var", "$text"

Scalar = str | int | float | bool
Hint = Callable[[str], str]


def uses(value: Any) -> bool:
    """Return whether `value` holds a variable anywhere."""
    if isinstance(value, Mapping):
        return bool({_VAR, _TEXT} & value.keys()) or any(map(uses, value.values()))
    return isinstance(value, (list, tuple)) and any(map(uses, value))


def parse_variables(words: Sequence[str]) -> dict[str, Scalar]:
    """``port=8080`` is a number, ``on=true`` a boolean, ``port='"8080"'`` and all else text."""
    return {name: _scalar(value) for name, value in pairs("variable", words).items()}


def pairs(what: str, words: Sequence[str]) -> dict[str, str]:
    """``["a=b"]``; each name once."""
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name or name in found:
            raise InvalidInput(
                "PairInvalid", f"cannot read a --{what}", "write it as name=value, each name once"
            )
        found[name] = value
    return found


def _scalar(text: str) -> Scalar:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, (str, int, float, bool)) else text


def fill(
    value: Any,
    known: Mapping[str, Scalar],
    place: str,
    doing: str,
    hint: Hint = "give it with: --variable {}=VALUE".format,
) -> Any:
    """`value` with its variables filled in. `place` is its field, `doing` as ``use web.yaml``,
    `hint` the next step for a variable that is missing, by its name.

    Raises InvalidInput that names a variable, never a value.
    """
    if isinstance(value, Mapping):
        if len(value) == 1 and _VAR in value:
            return _one(value[_VAR], known, place, doing, hint)
        if len(value) == 1 and _TEXT in value:
            return _text(value[_TEXT], known, place, doing, hint)
        return {
            key: fill(item, known, f"{place}.{key}", doing, hint) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [fill(item, known, f"{place}[{at}]", doing, hint) for at, item in enumerate(value)]
    return value


def _one(name: Any, known: Mapping[str, Scalar], place: str, doing: str, hint: Hint) -> Scalar:
    if not isinstance(name, str) or name not in known:
        shown = name if isinstance(name, str) and name.isprintable() and len(name) <= 80 else "?"
        raise InvalidInput(
            "VariableMissing",
            f"cannot {doing}: there is no variable {shown}",
            hint(shown),
            [FieldError(place, "VariableMissing")],
        )
    return known[name]


def _text(template: Any, known: Mapping[str, Scalar], place: str, doing: str, hint: Hint) -> str:
    if not isinstance(template, str):
        raise InvalidInput(
            "WrongType",
            f"cannot {doing}: $text takes text",
            "quote it",
            [FieldError(place, "WrongType")],
        )
    return "".join(_parts(template, known, place, doing, hint))


def _parts(
    template: str, known: Mapping[str, Scalar], place: str, doing: str, hint: Hint
) -> Iterator[str]:
    at = 0
    for use in _USE.finditer(template):
        yield template[at : use.start()]
        at = use.end()
        yield "$" if use[1] is None else _spelt(_one(use[1], known, place, doing, hint))
    yield template[at:]


def _spelt(value: Scalar) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
