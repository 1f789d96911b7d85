"""Parts that all forms share, and the form of an error."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Form(BaseModel):
    """These fields and no other."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Open(BaseModel):
    """These fields among others."""

    model_config = ConfigDict(extra="allow", strict=True)


class FieldFault(Form):
    """A field of an input, and the line where it stands in its file."""

    field: str
    code: str
    line: int | None = None
    column: int | None = None


class ErrorWords(Form):
    """An error: a stable code, what happened, what to do next."""

    code: str
    message: str
    hint: str
    errors: list[FieldFault]


class Error(Form):
    """Content of standard error where a command fails."""

    error: ErrorWords
