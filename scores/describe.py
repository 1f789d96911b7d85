"""A model's fields for people. Only people ask: nothing that an agent runs imports this."""

from __future__ import annotations

import textwrap
import types
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

_WIDTH: Final = 92


def fields_of(model: type[BaseModel]) -> str:
    """The fields, one a paragraph: type, default, what it means, an example."""
    fields = model.model_fields
    return "\n".join(["Fields:", "", *(_field(name, fields[name]) for name in fields)])


def _field(name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"default {default_of(field)}"
    examples = " or ".join(map(repr, field.examples or ()))
    words = [field.description or "", f"As {examples}." if examples else ""]
    told = textwrap.fill(
        " ".join(filter(None, words)),
        _WIDTH,
        initial_indent="        ",
        subsequent_indent="        ",
        break_on_hyphens=False,
    )
    return f"    {name}: {type_of(field.annotation)} ({default})" + (f"\n{told}" if told else "")


def default_of(field: FieldInfo) -> str:
    """The default, as Python writes it."""
    value = field.get_default(call_default_factory=True)
    return repr([] if value == () else value)


def type_of(annotation: Any) -> str:
    """A type as an author would say it: ``text``, ``list of Mount``, ``"tcp" or "udp"``."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_of(parts[0])
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin in (Union, types.UnionType):
        return " or ".join(type_of(part) for part in parts if part is not types.NoneType)
    if origin in (Sequence, list):
        return f"list of {type_of(parts[0])}"
    if origin in (Mapping, dict):
        return f"dict of {type_of(parts[0])} to {type_of(parts[1])}"
    return "text" if annotation is str else str(getattr(annotation, "__name__", annotation))
