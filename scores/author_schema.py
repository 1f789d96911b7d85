"""JSON Schema of what an author writes. Nothing that an agent runs imports this."""

from __future__ import annotations

from typing import Any, Final

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
