"""Read YAML that a person wrote: one document or several, strictly, with line and column for each
mistake.

`read_yaml` alone is what the others call. A plain document is read by libyaml, some twenty times
faster. Whatever isn't plain (directives, several documents, tags, anchors, odd characters, odd
numbers, mistakes) is left to ruamel.yaml. A scalar always gets its type by ruamel's rules.
"""

from __future__ import annotations

import contextlib
import re
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLFutureWarning, YAMLWarning
from ruamel.yaml.events import CollectionEndEvent, CollectionStartEvent
from ruamel.yaml.nodes import ScalarNode

from harmony_fleet.errors import InvalidInput, Line
from scores.canonical import MAX_DEPTH, line_of, place_of

_MAX_NODES: Final = 200_000
"""Values in a YAML document once its aliases are followed; 1,000 Scores have fewer."""


def read_yaml(data: bytes, where: str, most: int = _MAX_NODES) -> list[Any]:
    """YAML 1.2 documents; dates stay text, duplicate keys and exploding aliases are refused."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            "NotUtf8",
            f"cannot read {where}: not UTF-8 {place_of(data, error.start)}",
            "save as UTF-8",
        ) from None
    with told(text, f"read {where}"):
        value = quick(text)
        values = list(_reader().load_all(text)) if value is UNUSUAL else [value]
    values = [value for value in values if value is not None]
    for value in values:
        _check_size(value, text, where, most)
    return values


def _reader() -> Any:
    class Constructor(SafeConstructor):  # type: ignore[misc,unused-ignore]
        """Dates stay as they are written: the wire's times are text."""

    Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = Constructor
    return yaml


def _check_size(value: Any, text: str, where: str, most: int) -> None:
    """Walk with aliases followed, so that a small file can't become a huge manifest or an endless
    one.
    """
    nodes = 0
    level: Sequence[Any] = (value,)
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            if nodes + len(below) > most:
                raise InvalidInput(
                    "TooMany", f"cannot read {where}: more than {most} values", "split it"
                )
        nodes += len(below)
        if not below:
            return
        level = below
    said = f"cannot read {where}: nested deeper than {MAX_DEPTH} levels {_place_of_depth(text)}"
    raise InvalidInput("TooDeep", said, "flatten it")


def _place_of_depth(text: str) -> str:
    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        if isinstance(event, CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                return "at line {}, column {}".format(*_told(event.start_mark))
        elif isinstance(event, CollectionEndEvent):
            depth -= 1
    return "through an alias"


# -- plain documents, by libyaml

UNUSUAL: Final = object()
_ODD: Final = re.compile(
    # characters that end a line, or are a space, for some
    r"[^\n\x20-\x7e\u00a1-\u1fff\u2010-\u2027\u2030-\ud7ff\U00010000-\U0010ffff]"
    r"|^(?:%|---|\.\.\.)",
    re.MULTILINE,
)
_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,15})")
_FRACTION: Final = re.compile(r"-?[0-9]{1,9}\.[0-9]{1,9}")
_BLOCK: Final = re.compile(r"[|>][-+]?\n +[^\s#]")
_WORDS: Final = {"true": True, "false": False}
_MAX_DEPTH: Final = 100
_RESOLVER: Final = YAML(typ="safe", pure=True).resolver
_TAG: Final = "tag:yaml.org,2002:"


class _Unusual(Exception):
    """Not for us."""


def quick(text: str) -> Any:
    """The one document's value, or `UNUSUAL`."""
    if not yaml.__with_libyaml__ or _ODD.search(text):
        return UNUSUAL
    try:
        return _value(text, yaml.parse(text, Loader=yaml.CBaseLoader))
    except (_Unusual, yaml.YAMLError):
        return UNUSUAL


def _value(text: str, events: Iterable[Any]) -> Any:
    """Build the value from the parser's events, without recursion."""
    root: list[Any] = []
    stack: list[tuple[Any, list[Any]]] = [(None, root)]  # what is built, and its items so far
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            if event.anchor is not None or event.tag is not None:
                raise _Unusual
            if event.style in ("|", ">") and not _BLOCK.match(text, event.start_mark.index):
                raise _Unusual
            stack[-1][1].append(_scalar(event.value) if event.implicit[0] else event.value)
        elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            if event.anchor is not None or event.tag is not None or len(stack) > _MAX_DEPTH:
                raise _Unusual
            stack.append((kind, []))
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            made, items = stack.pop()
            stack[-1][1].append(_mapping(items) if made is yaml.MappingStartEvent else items)
        elif kind is yaml.AliasEvent:
            raise _Unusual
    if len(root) != 1:
        raise _Unusual
    return root[0]


def _mapping(items: list[Any]) -> dict[Any, Any]:
    """Keys and values in turn."""
    keys = items[::2]
    if not all(type(key) is str for key in keys):
        raise _Unusual
    made = dict(zip(keys, items[1::2], strict=True))
    if len(made) != len(keys):
        raise _Unusual  # which of them stands twice is told by the other reader
    return made


@lru_cache(maxsize=4096)
def _scalar(text: str) -> Any:
    """A plain scalar, by the type that the other reader would give it."""
    tag = str(_RESOLVER.resolve(ScalarNode, text, (True, False))).removeprefix(_TAG)
    if tag in ("str", "timestamp"):
        return text
    if tag == "int" and _WHOLE.fullmatch(text):
        return int(text)
    if tag == "float" and _FRACTION.fullmatch(text):
        return float(text)
    if tag == "bool" and text in _WORDS:
        return _WORDS[text]
    if tag == "null":
        return None
    raise _Unusual


# -- what the library says of mistakes

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
_KEY: Final = re.compile(r"[\s-]*[A-Za-z0-9_.-]+\s*:(?=\s|$)")
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
        line, column = _place(text, error)
        if what == _OTHERWISE[1] and _has_tab(text, line):
            what, hint = "a tab, where YAML takes spaces alone,", "indent with spaces"
        place = f"at line {line}, column {column}"
        shown = _shown(text, line, column)
        raise InvalidInput(code, f"cannot {doing}: {what} {place}", hint, lines=shown) from None


def _shown(text: str, line: int, column: int) -> list[Line]:
    """The line with its key alone: what stands behind it may be a secret."""
    source = "".join(text.split("\n")[line - 1 : line])  # a carriage return ends a line for YAML
    key = _KEY.match(source)
    if key is None or (not source.isprintable() and "\t" not in source):
        return []
    told = f"{key[0].rstrip()} …".replace("\t", "→")
    start = min(column - 1, len(told) - 1)
    return [Line(line, column, told, start, 1)]


def _has_tab(text: str, line: int) -> bool:
    """Return whether a tab stands among the spaces that a line begins with."""
    lines = text.split("\n")[line - 1 : line]
    return any("\t" in each[: len(each) - len(each.lstrip())] for each in lines)


def _place(text: str, error: Exception) -> tuple[int, int]:
    """Find its place: by the error itself, else by the innermost frame of the library that knows."""
    at = getattr(error, "position", None)  # a character that YAML doesn't know
    if isinstance(at, int):
        return line_of(text, at)
    for mark in (getattr(error, name, None) for name in _MARKS):
        if mark is not None:
            return _told(mark)
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        marks = [getattr(frame.f_locals.get(name), "start_mark", None) for name in _MARKED]
        for mark in (frame.f_locals.get("start_mark"), *marks):
            if hasattr(mark, "line"):
                return _told(mark)
    return 1, 1


def _told(mark: object) -> tuple[int, int]:
    return getattr(mark, "line", 0) + 1, getattr(mark, "column", 0) + 1
