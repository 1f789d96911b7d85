"""Write a manifest as YAML, each note as a comment behind the resource that it is of."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from harmony_fleet.importing.fit import value_of
from harmony_fleet.importing.resource import Resource, one_line

HEAD: Final = "Not taken over, or to be looked at:"


def manifest_text(name: str, resources: Sequence[Resource], notes: Sequence[str]) -> str:
    """The file's text."""
    lines = [f"deployment: {name}"]
    if notes:
        lines += [f"# {HEAD}", *(f"#   {one_line(note)}" for note in dict.fromkeys(notes))]
    lines.append("scores:")
    for one in resources:
        item = _yaml(_literal(value_of(one))).splitlines()
        lines += [f"  {'- ' if not at else '  '}{line}".rstrip() for at, line in enumerate(item)]
        if one.notes:
            lines += [f"    # {HEAD}", *(f"    #   {note}" for note in one.notes)]
    return "\n".join(lines) + "\n"


def _literal(value: Any) -> Any:
    """Texts of several lines as blocks, where a block can hold them."""
    if isinstance(value, dict):
        return {key: _literal(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_literal(one) for one in value]
    if isinstance(value, str) and "\n" in value and _fits_a_block(value):
        return LiteralScalarString(value)
    return value


def _fits_a_block(text: str) -> bool:
    plain = all(char.isprintable() or char in "\n\t" for char in text)
    lines = text.split("\n")
    return plain and not any(line != line.rstrip() for line in lines) and bool(lines[0][:1].strip())


def _yaml(value: Any) -> str:
    yaml = YAML()
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    buffer = StringIO()
    yaml.dump(value, buffer)
    return buffer.getvalue()
