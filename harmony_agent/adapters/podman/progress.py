"""Reads the lines that podman tells of a pull. Pure.

Two forms: docker's, with a layer's id, status and bytes; podman's own, with a text for people.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from harmony_agent.topology.images import PullProgress

_DONE: Final = frozenset({"Already exists", "Download complete"})
_BEGUN: Final = "Pulling fs layer"
_READ: Final = "Downloading"


@dataclass(slots=True)
class _Layer:
    read: int = 0
    size: int = 0
    done: bool = False


class Layers:
    """The layers of one pull."""

    def __init__(self) -> None:
        self._layers: dict[str, _Layer] = {}

    def add(self, line: bytes) -> bool:
        """Take in a line; tell if it is of a layer."""
        body = _object(line)
        status, ident = body.get("status"), body.get("id")
        if not isinstance(ident, str) or not (status in _DONE or status in (_BEGUN, _READ)):
            return False
        layer = self._layers.setdefault(ident, _Layer())
        detail = body.get("progressDetail")
        if status == _READ and isinstance(detail, dict):
            layer.read = _number(detail.get("current"))
            layer.size = max(_number(detail.get("total")), layer.read)
        elif status in _DONE:
            layer.read, layer.done = layer.size, True
        return True

    def progress(self) -> PullProgress:
        """Sum of all layers."""
        layers = self._layers.values()
        return PullProgress(
            len(layers),
            sum(layer.done for layer in layers),
            sum(layer.read for layer in layers),
            sum(layer.size for layer in layers),
        )


def error_of(line: bytes) -> str | None:
    """Return the error in a line. None if it holds none."""
    error = _object(line).get("error")
    return str(error) if error else None


def _object(line: bytes) -> dict[str, Any]:
    try:
        body = json.loads(line)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _number(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
