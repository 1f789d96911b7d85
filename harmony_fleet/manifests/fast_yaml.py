"""Plain YAML read by libyaml, some thirty times faster; whatever isn't plain is left to the reader
in `load`.

It never decides what a document means: a scalar gets its type by the other reader's own rules, and
where the two could understand a document differently (directives, several documents, tags, anchors,
odd characters, odd numbers, mistakes) it says `UNUSUAL` and has no opinion.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import yaml
from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode

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
