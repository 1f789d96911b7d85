"""JSON values as YAML text. The agent has no library for YAML: it reads none, and writes this."""

from __future__ import annotations

import json
from typing import Any


def to_yaml(value: Any, indent: str = "") -> str:
    """Block style; each text is quoted as JSON does it, which YAML reads the same."""
    if isinstance(value, dict) and value:
        lines = (f"{indent}{_flow(key)}:{_below(item, indent)}" for key, item in value.items())
        return "\n".join(lines)
    if isinstance(value, list) and value:
        return "\n".join(f"{indent}-{_below(item, indent)}" for item in value)
    return indent + _flow(value)


def _below(value: Any, indent: str) -> str:
    if isinstance(value, (dict, list)) and value:
        return "\n" + to_yaml(value, indent + "  ")
    return " " + _flow(value)


def _flow(value: Any) -> str:
    """YAML has no pairs of surrogates as JSON has; what a terminal acts on is spelt out."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
