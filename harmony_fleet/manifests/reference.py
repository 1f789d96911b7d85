"""The words behind `harmony explain`: codes from the pages of `docs/reasons/`, kinds and fields from
the Scores themselves.

There is no second table: a code is explained here as it is documented, a field as its Score describes it.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from scores.author_schema import NOT_THE_AUTHORS, author_models, models_in
from scores.base import Model
from scores.describe import default_of, type_of

PAGES: Final = Path(__file__).resolve().parent.parent / "reasons"
_CELL: Final = re.compile(r"(?<!\\)\|")
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True, slots=True)
class Meaning:
    """A code, as one page has it. `page` is the page's title: a code may mean two things."""

    code: str
    page: str
    meaning: str
    fix: str


@dataclass(frozen=True, slots=True)
class FieldWords:
    """A field of a Score, or of a part of one."""

    name: str
    type: str
    default: str
    """As an author would write it; "" where the field has to be set."""
    meaning: str
    examples: tuple[Any, ...]
    parts: tuple[str, ...]
    """Names of the models that it holds."""


@dataclass(frozen=True, slots=True)
class ModelWords:
    """A kind, a part of one, or the manifest."""

    name: str
    meaning: str
    fields: tuple[FieldWords, ...]


@functools.cache
def codes() -> Mapping[str, list[Meaning]]:
    """Every code of the pages."""
    found: dict[str, list[Meaning]] = {}
    for page in sorted(PAGES.glob("*.md")):
        lines = page.read_text("utf-8").splitlines()
        title = next((line[2:] for line in lines if line.startswith("# ")), page.stem)
        for line in lines:
            cells = _CELL.split(line)
            if not line.startswith("| `") or len(cells) < 5:
                continue
            for code in re.findall(r"`([^`]+)`", cells[1]):
                words = (_plain(cell) for cell in cells[2:4])
                found.setdefault(code, []).append(Meaning(code, _plain(title), *words))
    return found


def _plain(cell: str) -> str:
    """A cell's words without the marks of Markdown."""
    return _LINK.sub(r"\1", cell.replace("\\|", "|")).replace("`", "").strip()


@functools.cache
def models() -> Mapping[str, type[BaseModel]]:
    """Every model that an author writes, by its name."""
    return author_models()


def explained_model(model: type[BaseModel]) -> ModelWords:
    """A model, with each field that is an author's."""
    known = models()
    fields = tuple(
        explained_field(name, field)
        for name, field in model.model_fields.items()
        if not (model is known["Manifest"] and name in NOT_THE_AUTHORS)
    )
    opening = model.opening if issubclass(model, Model) else model.__doc__ or ""
    return ModelWords(model.__name__, opening.replace("``", "").replace("`", ""), fields)


def explained_field(name: str, field: FieldInfo) -> FieldWords:
    """One field."""
    default = "" if field.is_required() else default_of(field)
    examples = tuple(field.examples or ())
    parts = tuple(model.__name__ for model in models_in(field.annotation))
    meaning = field.description or ""
    return FieldWords(name, type_of(field.annotation), default, meaning, examples, parts)


def find(name: str) -> list[Meaning] | ModelWords | tuple[ModelWords, FieldWords] | None:
    """Find what `name` names: a code, a kind or a part of one, or a field as ``Container.mounts``.

    Upper and lower case are the same where only one thing is meant.
    """
    head, *path = name.split(".")
    known = models()
    if not path:
        table: Mapping[str, Any] = {**codes(), **known}
        right = _spelt(head, table)
        found = table.get(right)
        return explained_model(known[right]) if right in known else found
    model = _owner(name)
    last = _spelt(path[-1], model.model_fields) if model is not None else ""
    if model is None or last not in model.model_fields:
        return None
    return explained_model(model), explained_field(last, model.model_fields[last])


def _owner(name: str) -> type[BaseModel] | None:
    """The model that the last part of `name` is a field of, or would be."""
    head, *path = name.split(".")
    model = models().get(_spelt(head, models()))
    for part in path[:-1]:
        model = _part(model, part)
    return model


def _spelt(name: str, known: Iterable[str]) -> str:
    """`name` as it is known; as it is where it isn't."""
    names = set(known)
    same = [one for one in names if one.lower() == name.lower()]
    return name if name in names or len(same) != 1 else same[0]


def _part(model: type[BaseModel] | None, field: str) -> type[BaseModel] | None:
    """The model that a field holds, where it holds one."""
    info = model.model_fields.get(field) if model is not None else None
    held = models_in(info.annotation) if info is not None else []
    return held[0] if len(held) == 1 else None


def names() -> list[str]:
    """Everything that can be explained."""
    fields = [
        f"{name}.{field.name}"
        for name, model in models().items()
        for field in explained_model(model).fields
    ]
    return sorted({*codes(), *models(), *fields})


def near(name: str) -> list[str]:
    """Up to three names that are spelt nearly so."""
    every = {one.lower(): one for one in names()}
    owner = _owner(name)
    wanted = name.lower()
    if owner is not None and "." in name:
        wanted = f"{owner.__name__}.{name.rpartition('.')[2]}".lower()
    close = difflib.get_close_matches(wanted, every, n=3, cutoff=0.7)
    ends = [one for one in every if one.rpartition(".")[2] == wanted and "." in one]
    return [every[one] for one in dict.fromkeys([*close, *ends[:3]])][:3]
