"""`harmony explain`: what a code, a kind or a field means, at 80 columns."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from typing import Any, Final

from harmony_fleet.commands.common import Common, write
from harmony_fleet.errors import ExitCode, InvalidInput
from harmony_fleet.manifests import reference
from harmony_fleet.manifests.reference import FieldWords, Meaning, ModelWords
from harmony_fleet.output import render
from harmony_fleet.output.render import Output

WIDTH: Final = 80


def explain(common: Common, name: str) -> ExitCode:
    """Print what `name` means."""
    found = reference.find(name)
    if found is None:
        near = reference.near(name)
        raise InvalidInput(
            "NotFound",
            f"cannot explain {name[:100]!r}: it is no code, no kind and no field",
            f"did you mean {' or '.join(near)}?" if near else "see the kinds with: harmony schema",
        )
    if common.output is Output.TABLE:
        render.out().print("\n".join(told(found)), soft_wrap=True, markup=False)
    else:
        write(_value(found), common.output)
    return ExitCode.DONE


def _value(found: list[Meaning] | ModelWords | tuple[ModelWords, FieldWords]) -> Any:
    if isinstance(found, list):
        return [dataclasses.asdict(one) for one in found]
    if isinstance(found, ModelWords):
        return dataclasses.asdict(found)
    model, field = found
    return {"of": model.name, **dataclasses.asdict(field)}


def told(found: list[Meaning] | ModelWords | tuple[ModelWords, FieldWords]) -> list[str]:
    """The lines for a person."""
    if isinstance(found, list):
        return [found[0].code, *(line for one in found for line in _code(one))]
    if isinstance(found, ModelWords):
        return _model(found)
    model, field = found
    return [f"{model.name}.{field.name}", "", *_field(field)]


def _code(one: Meaning) -> list[str]:
    told = wrapped(f"{one.page}: {one.meaning}", "  ")
    return ["", *told, *wrapped(f"What to do: {one.fix}", "  ", "    ")]


def _model(model: ModelWords) -> list[str]:
    lines = [model.name, ""]
    for paragraph in model.meaning.split("\n\n"):
        lines += [*wrapped(" ".join(paragraph.split()), "  "), ""]
    for field in model.fields:
        default = f", default {field.default}" if field.default else ", required"
        lines += wrapped(f"{field.name}: {field.type}{default}", "  ", "      ")
        lines += wrapped(field.meaning, "      ")
    last = model.fields[-1].name
    return [*lines, "", *wrapped(f"A field's examples: harmony explain {model.name}.{last}", "  ")]


def _field(field: FieldWords) -> list[str]:
    lines = wrapped(field.meaning, "  ")
    lines += wrapped(f"Type: {field.type}", "  ", "    ")
    lines += wrapped(f"Default: {field.default}" if field.default else "Required.", "  ", "    ")
    for example in field.examples:
        shown = json.dumps(example, ensure_ascii=False, default=str)
        lines += wrapped(f"Example: {field.name}: {shown}", "  ", "    ")
    for part in field.parts:
        lines += wrapped(f"Its fields: harmony explain {part}", "  ", "    ")
    return lines


def wrapped(text: str, indent: str, further: str | None = None) -> list[str]:
    """`text` in lines of at most `WIDTH` columns; a word that is longer stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if further is None else further,
        break_on_hyphens=False,
        break_long_words=False,
    )
