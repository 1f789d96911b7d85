"""Canonical JSON and digests: the same content is the same bytes, whoever writes it.

UTF-8, sorted keys, no insignificant white space, no NaN. `read` is as strict as `canonical`: it
refuses what two readers could understand differently (duplicate keys, NaN) and what could exhaust
one (depth, size).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
from typing import Any, Final, NoReturn

from pydantic_core import from_json, to_json

MAX_DEPTH: Final = 32
"""Levels of nesting that are read; the deepest Score needs 8."""


_STRING: Final = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string, or the beginning of one that doesn't end."""
_BRACKETS: Final = re.compile(r"[\[\]{}]")
_TOKEN: Final = re.compile(
    r'"(?:[^"\\]++|\\.)*+"|[\[\]{},]|-?(?:NaN|Infinity)|-?[0-9][-+.0-9eE]*+', re.DOTALL
)


class NotCanonical(ValueError):
    """The bytes are no JSON that may be trusted. `code` is stable; the message holds no value."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def canonical(value: Any) -> bytes:
    """The canonical bytes of a JSON value. ValueError on NaN or a lone surrogate."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def digest(data: bytes) -> str:
    """``sha256:`` and 64 hex digits."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read(data: bytes, limit: int) -> Any:
    """Parse bytes strictly. `limit` is in bytes. Raises NotCanonical with a code of
    ``docs/reasons/``.
    """
    if len(data) > limit:
        raise NotCanonical("TooLarge", f"{len(data)} bytes, at most {limit} are read")
    with contextlib.suppress(ValueError):
        value = from_json(data, allow_inf_nan=False)  # which goes no deeper than 200 levels
        # nothing said twice or spelt otherwise, no white space: as we write it
        if to_json(value) == data and not _too_deep(value):
            return value
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotCanonical("NotUtf8", f"not UTF-8 {place_of(data, error.start)}") from None
    try:
        return _parsed(text)
    except NotCanonical as error:
        place = place_of(text, _fault(text, error.code))
        raise NotCanonical(error.code, f"{error} {place}") from None
    except json.JSONDecodeError as error:
        raise NotCanonical(
            "NotJson", f"not JSON at line {error.lineno}, column {error.colno}"
        ) from None


def _parsed(text: str) -> Any:
    """Parse a text. Raises NotCanonical without a place, JSONDecodeError."""
    _check_depth(text)
    try:
        return json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
    except (NotCanonical, json.JSONDecodeError):
        raise
    except ValueError:  # an integer of more digits than Python converts
        raise NotCanonical("NumberTooLarge", "an integer has too many digits") from None


def _fault(text: str, code: str) -> int:
    """Return the index of the first token that breaks the rule `code`. The rest isn't looked at."""
    names: list[set[str] | None] = []  # of each open object so far; None for a list
    before = ""
    for token in _TOKEN.finditer(text):
        word = token[0]
        if word in "[{":
            if code == "TooDeep" and len(names) == MAX_DEPTH:
                return token.start()
            names.append(set() if word == "{" else None)
        elif word in "]}":
            del names[-1:]
        elif word[0] == '"':
            known = names[-1] if names and before in ("{", ",") else None
            if code == "DuplicateKey" and known is not None:
                if (name := json.loads(word)) in known:
                    return token.start()
                known.add(name)
        elif word != "," and _is_broken(word, code):
            return token.start()
        before = word
    return 0


def _is_broken(number: str, code: str) -> bool:
    if number[-1] in "Ny":  # NaN, Infinity
        return code == "NotFinite"
    try:
        (_finite if {*number} & {*".eE"} else int)(number)
    except ValueError:
        return code == "NumberTooLarge"
    return False


def place_of(text: str | bytes, index: int) -> str:
    """Line and column of what stands at `index`, both counted from 1. A column of bytes is counted
    in bytes.
    """
    line, column = line_of(text, index)
    return f"at line {line}, column {column}"


def line_of(text: str | bytes, index: int) -> tuple[int, int]:
    """The same as numbers."""
    before = text[:index] if isinstance(text, str) else text[:index].decode("latin-1")
    lines = before.split("\n")
    return len(lines), len(lines[-1]) + 1


def _check_depth(text: str) -> None:
    """Count brackets outside strings before parsing, so that depth costs no stack."""
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return
    depth = 0
    for char in _BRACKETS.findall(_STRING.sub("", text)):
        depth += 1 if char in "[{" else -1
        if depth > MAX_DEPTH:
            raise NotCanonical("TooDeep", f"nested deeper than {MAX_DEPTH} levels")


def _too_deep(value: Any) -> bool:
    """Check the depth of a parsed value, a level at a time."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(MAX_DEPTH):
        if not level:
            return False
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise NotCanonical("DuplicateKey", "an object has the same key twice")
    return value


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):  # 1e999
        raise NotCanonical("NumberTooLarge", "a number is too large")
    return number


def _no_constant(_name: str) -> NoReturn:
    raise NotCanonical("NotFinite", "NaN and Infinity are no JSON")
