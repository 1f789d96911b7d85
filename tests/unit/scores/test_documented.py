"""What an author finds out without documents: `help`, the schema, each field's words and examples."""

from __future__ import annotations

import pydoc
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

import scores
from scores.author_schema import NOT_THE_AUTHORS, author_schema
from scores.manifest import SCORE_TYPES, Manifest


def below(annotation: Any) -> Iterator[type[BaseModel]]:
    """The models that an annotation names, at any depth."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in typing.get_args(annotation):
        yield from below(part)


def models() -> list[type[BaseModel]]:
    """Each model that an author writes: the manifest, and what is reached from it."""
    found: dict[type[BaseModel], None] = {Manifest: None}
    while True:
        reached = [
            model
            for known in found
            for field in known.model_fields.values()
            for model in below(field.annotation)
        ]
        new = [model for model in reached if model not in found]
        if not new:
            return list(found)
        found |= dict.fromkeys(new)


FIELDS = [
    pytest.param(model, name, field, id=f"{model.__name__}.{name}")
    for model in models()
    for name, field in model.model_fields.items()
]
EXPORTED = {name for name in scores.__all__ if isinstance(getattr(scores, name), type)}


def needs_no_example(annotation: Any) -> bool:
    """A choice, a switch or another model says by itself what may stand there."""
    if typing.get_origin(annotation) is typing.Literal or annotation in (bool, type(None)):
        return True
    if isinstance(annotation, type):
        return issubclass(annotation, BaseModel)
    parts = typing.get_args(annotation)
    return bool(parts) and (
        needs_no_example(parts[0])
        if typing.get_origin(annotation) is typing.Annotated
        else all(needs_no_example(part) for part in parts if not isinstance(part, FieldInfo))
    )


def test_what_an_author_writes_is_found() -> None:
    names = {model.__name__ for model in models()}
    assert set(SCORE_TYPES) < names
    assert {"Probe", "HttpProbe", "TcpProbe", "Mount", "PortMapping", "ObjectRef"} < names
    assert {"Healthcheck", "InitContainer"} < names & EXPORTED


@pytest.mark.parametrize(("model", "name", "field"), FIELDS)
def test_each_field_is_described(model: type[BaseModel], name: str, field: FieldInfo) -> None:
    words = field.description or ""
    assert len(words.split()) >= 3, words
    assert words.endswith("."), words
    if name.endswith("_seconds"):
        assert words.startswith("Seconds"), "the unit comes first"
    if field.default is None and not field.is_required() and "None" not in words:
        assert name in WITHOUT_A_DEFAULT, "says what is meant when it is left out"


WITHOUT_A_DEFAULT = {
    *("content", "content_base64", "template", "object", "target", "source", "http", "tcp", "exec"),
    *("healthcheck", "lineage", "generation", "supersedes", "allow_prune", "signatures", "remains"),
}
"""What isn't there when it isn't set."""


@pytest.mark.parametrize(("model", "name", "field"), FIELDS)
def test_each_example_may_be_written(model: type[BaseModel], name: str, field: FieldInfo) -> None:
    examples = field.examples or []
    assert examples or needs_no_example(field.annotation)
    field_type = TypeAdapter(typing.get_type_hints(model, include_extras=True)[name])
    for example in examples:
        field_type.validate_python(example, strict=True)


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_help_shows_the_fields_first(model: type[BaseModel]) -> None:
    text = pydoc.plain(pydoc.render_doc(model))
    head = text[: text.index("Method resolution order")]
    places = [head.index(f"    {name}: ") for name in model.model_fields]
    assert places == sorted(places)
    for field in model.model_fields.values():
        assert (field.description or "").split()[0] in head


def test_help_tells_type_default_unit_and_example() -> None:
    text = pydoc.plain(pydoc.render_doc(scores.Container))
    assert re.search(r"stop_grace_seconds: int \(default 10\)\n.*Seconds .* As 30\.", text)
    assert "protocol: 'tcp' or 'udp'" in pydoc.plain(pydoc.render_doc(scores.PortMapping))


def test_a_schema_tells_a_model_without_its_fields_again() -> None:
    for model in models():
        told = model.model_json_schema()["description"]
        assert told
        assert "Fields:" not in told


def test_an_authors_schema_has_what_is_theirs() -> None:
    value = author_schema()
    assert set(value["properties"]) == set(Manifest.model_fields) - NOT_THE_AUTHORS
    assert "Signature" not in value["$defs"]
    for name, made in {"Manifest": value, **value["$defs"]}.items():
        lacks = [field for field, how in made["properties"].items() if "description" not in how]
        assert lacks == [], name


def test_no_device_carries_the_words_for_people() -> None:
    script = "import scores, sys; print('scores.describe' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "False"
