"""What ruamel.yaml says of a text that a person wrote, be it an error or a warning: invalid input,
with its place.

The library's own words may repeat a value, as a duplicate key's two, so only the place is told.
"""

from __future__ import annotations

import contextlib
import traceback
import warnings
from collections.abc import Iterator
from typing import Final

from ruamel.yaml.error import YAMLFutureWarning, YAMLWarning

from harmony_fleet.errors import InvalidInput
from scores.canonical import place_of

_MARKS: Final = ("problem_mark", "context_mark")
_MARKED: Final = ("node", "event", "token")
_TOLD: Final = {
    "DuplicateKeyError": ("DuplicateKey", "a key stands twice", "take one of them out"),
    "ReusedAnchorWarning": (
        "NotYaml",
        "an anchor stands twice",
        "give each anchor a name of its own",
    ),
    "RecursionError": ("TooDeep", "nested too deeply", "flatten it"),
}
_OTHERWISE: Final = ("NotYaml", "not YAML", "mend the YAML there: quote unusual scalars, drop tags")


@contextlib.contextmanager
def told(text: str, doing: str) -> Iterator[None]:
    """Raise InvalidInput for whatever the library raises or warns of within. `doing` is as ``read
    web.yaml``.
    """
    try:
        with warnings.catch_warnings():
            for kind in (YAMLWarning, YAMLFutureWarning):
                warnings.simplefilter("error", kind)
            yield
    except Exception as error:
        code, what, hint = _TOLD.get(type(error).__name__, _OTHERWISE)
        raise InvalidInput(code, f"cannot {doing}: {what} {_place(text, error)}", hint) from None


def _place(text: str, error: Exception) -> str:
    """Where it is: by the error itself, else by the innermost frame of the library that knows."""
    at = getattr(error, "position", None)  # a character that YAML doesn't know
    if isinstance(at, int):
        return place_of(text, at)
    for mark in (getattr(error, name, None) for name in _MARKS):
        if mark is not None:
            return _told(mark)
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        marks = [getattr(frame.f_locals.get(name), "start_mark", None) for name in _MARKED]
        for mark in (frame.f_locals.get("start_mark"), *marks):
            if hasattr(mark, "line"):
                return _told(mark)
    return place_of(text, 0)


def _told(mark: object) -> str:
    return f"at line {getattr(mark, 'line', 0) + 1}, column {getattr(mark, 'column', 0) + 1}"
