"""Lines of a YAML or JSON text, with what is wrong in them underlined.

A line is shown as far as it is no secret: keys, and values of fields that tell none. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import yaml

from harmony_fleet.errors import Line
from harmony_fleet.manifests.diff import SHOWN

_PLAIN: Final = SHOWN | {
    *(
        "api",
        "deployment",
        "device",
        "allow_prune",
        "revert_after",
        "removed",
        "kind",
        "name",
        "after",
    ),
    *("restart_on", "reload_on", "host_port", "container_port", "protocol", "host_ip", "source"),
    *("size", "scheme", "port", "retries", "period_seconds", "timeout_seconds", "interval_seconds"),
    *("initial_delay_seconds", "start_period_seconds", "success_threshold", "failure_threshold"),
}
"""Fields whose value may be shown."""
_AROUND: Final = {
    *("scores", "remains", "ports", "mounts", "init_containers", "healthcheck"),
    *("readiness", "liveness", "http", "tcp"),
}
_WIDEST: Final = 120


class Places:
    """The places of one document of a text, found when the first is asked for."""

    def __init__(self, text: str, document: int = 0) -> None:
        self._text = text
        self._document = document
        self._root: yaml.Node | None = None

    def line(self, place: Sequence[int | str], code: str) -> Line | None:
        """The line of what is at `place`, or of the nearest around it; None where it can't be told."""
        root = self._compose()
        if root is None:
            return None
        if code == "UnknownKind":
            place = (*place, "kind")
        key, node, whole = _walk(root, place)
        plain = all(part in _PLAIN or part in _AROUND for part in place if isinstance(part, str))
        shows = whole and code != "UnknownField" and plain
        if not whole and isinstance(node, yaml.MappingNode) and node.value:
            key, node = _header(node)  # of a resource in which something is missing
            shows = True
        if (key or node).start_mark.line >= self._text.count("\n") + 1:
            return None  # lines that end otherwise
        return self._drawn(key, node, shows=shows)

    def _compose(self) -> yaml.Node | None:
        if self._root is None:
            try:
                documents = list(yaml.compose_all(self._text, Loader=yaml.CSafeLoader))
            except (yaml.YAMLError, RecursionError):
                return None
            full = [node for node in documents if node.tag != "tag:yaml.org,2002:null"]
            self._root = full[self._document] if self._document < len(full) else None
        return self._root

    def _drawn(self, key: yaml.Node | None, node: yaml.Node, *, shows: bool) -> Line:
        lines = self._text.split("\n")
        scalar = isinstance(node, yaml.ScalarNode) and node.start_mark.line == node.end_mark.line
        first = key or node
        at = first.start_mark
        source = lines[at.line]
        beside = scalar and node.start_mark.line == at.line
        if key is not None and shows and beside:
            start, end, rest = node.start_mark.column, node.end_mark.column, ""
        elif key is not None:
            start, end, rest = at.column, key.end_mark.column, ": …"
        elif shows and scalar:
            start, end, rest = at.column, node.end_mark.column, ""
        else:
            start, end, rest = at.column, at.column, "…"
        before = source[: at.column]
        lead = before if not before.strip(" -") else "… "
        shown = lead + source[at.column : end] + rest
        if len(shown) > _WIDEST:
            start, end, shown = at.column, at.column + 1, lead + "…"
        move = len(lead) - at.column
        text = "".join(char if char.isprintable() else "?" for char in shown)
        return Line(at.line + 1, start + 1, text, start + move, max(end - start, 1))


def _walk(node: yaml.Node, place: Sequence[int | str]) -> tuple[yaml.Node | None, yaml.Node, bool]:
    """The node at `place`, its key where it has one, and whether all of `place` was found."""
    key: yaml.Node | None = None
    for part in place:
        if isinstance(node, yaml.SequenceNode):
            if not isinstance(part, int) or part >= len(node.value):
                return key, node, False
            key, node = None, node.value[part]
        elif isinstance(node, yaml.MappingNode):
            found = next((pair for pair in node.value if pair[0].value == str(part)), None)
            if found is None:
                return key, node, False
            key, node = found
        else:
            return key, node, False
    return key, node, True


def _header(node: yaml.MappingNode) -> tuple[Any, Any]:
    """The pair that tells a mapping from others: its name, else what stands first."""
    pairs = {key.value: (key, value) for key, value in node.value if key.value in ("name", "kind")}
    return pairs.get("name") or pairs.get("kind") or (node.value[0][0], node.value[0][0])
