"""A union of Scores in which the schema of a kind is built when its first Score is read.

A device has Scores of few kinds, and Container's schema alone takes 30 ms and 0.8 MB.
"""

from __future__ import annotations

from typing import Annotated, Any, get_args

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationInfo
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema


class ByKind:
    """Mark of the union, as in ``Annotated[A | B, ByKind()]``.

    It reads and refuses the same as ``Field(discriminator="kind")``.
    """

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        choices = {
            kind: handler.generate_schema(Annotated[Any, _Later(model)])
            for model in get_args(source)
            for kind in get_args(model.model_fields["kind"].annotation)
        }
        return core_schema.tagged_union_schema(choices, "kind")


class _Later:
    """Reads one kind by the model's own validator, which pydantic builds at the first call."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model

    def _read(self, value: Any, info: ValidationInfo) -> Any:
        return self._model.__pydantic_validator__.validate_python(value, context=info.context)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        del source, handler
        return core_schema.with_info_plain_validator_function(self._read)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        del schema
        model = self._model
        model.model_rebuild()
        made: Any = model.__pydantic_core_schema__
        if (
            "definitions" not in made
        ):  # pydantic names it then no longer, and it would stand in each union
            made = {**made, "ref": f"{model.__module__}.{model.__qualname__}:{id(model)}"}
            made = core_schema.definitions_schema(made, [])
        return handler(made)
