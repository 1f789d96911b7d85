"""The author's part of a manifest: its JSON Schema, and its models by their place. Nothing that an agent runs
imports this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

from pydantic import BaseModel

from scores.manifest import SCORE_TYPES, Manifest

NOT_THE_AUTHORS: Final = frozenset({"lineage", "generation", "supersedes", "signatures", "remains"})
"""Fields of a manifest that commands set."""


def author_schema(kind: str | None = None) -> dict[str, Any]:
    """JSON Schema of a manifest as an author writes it, or of one kind's Score.

    A manifest's schema has no field that commands set, though a file may have them: one that
    `harmony get` wrote does.
    """
    model: type[BaseModel] = SCORE_TYPES[kind] if kind else Manifest
    value = model.model_json_schema()
    if kind is None:
        for name in NOT_THE_AUTHORS:
            del value["properties"][name]
        del value["$defs"]["Signature"]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **value}


def model_of(
    root: type[BaseModel], place: Sequence[int | str], value: Any
) -> type[BaseModel] | None:
    """The model that has the last part of `place` as its field. `value` is what was read there, which
    tells the kind of a Score where the place doesn't.
    """
    found: type[BaseModel] | None = root
    annotation: Any = None
    for part in place[:-1]:
        value = _item(value, part)
        if part in SCORE_TYPES and len(models_in(annotation)) > 1:
            found = SCORE_TYPES[str(part)]
        elif isinstance(part, int):
            found = _one(models_in(annotation), value)
        elif found is None or part not in found.model_fields:
            return None
        else:
            annotation = found.model_fields[part].annotation
            found = _one(models_in(annotation), value)
    return found


def _item(value: Any, part: int | str) -> Any:
    if isinstance(value, Mapping):
        return value.get(part, value)  # the kind, which stands in a place and in no value
    if isinstance(value, list) and isinstance(part, int) and part < len(value):
        return value[part]
    return value


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in models_in(part)]


def _one(models: Sequence[type[BaseModel]], value: Any) -> type[BaseModel] | None:
    if len(models) < 2:
        return models[0] if models else None
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return SCORE_TYPES.get(kind) if isinstance(kind, str) else None


def author_models() -> dict[str, type[BaseModel]]:
    """Every model that authors write, by the name of its class: the manifest, and what it holds."""
    known: dict[str, type[BaseModel]] = {}
    waiting: list[type[BaseModel]] = [Manifest]
    while waiting:
        model = waiting.pop()
        if model.__name__ not in known:
            known[model.__name__] = model
            waiting += [
                below
                for name, field in model.model_fields.items()
                if not (model is Manifest and name in NOT_THE_AUTHORS)
                for below in models_in(field.annotation)
            ]
    return known


def model_named(name: str) -> type[BaseModel] | None:
    """A model that authors write, by the name of its class."""
    return author_models().get(name)
