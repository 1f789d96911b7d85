"""A refused field, with what to do where the code alone can't say it. Pure."""

from __future__ import annotations

from scores.manifest import FieldError


class Refusal(FieldError):
    """A FieldError with advice for people, which is in messages and not on the wire."""

    advice: str = ""

    def __new__(cls, field: str, code: str, advice: str) -> Refusal:
        """Make one; to all others it is the pair of field and code."""
        made = super().__new__(cls, field, code)
        made.advice = advice
        return made


def advice_of(error: FieldError) -> str:
    """The advice, where there is some."""
    return error.advice if isinstance(error, Refusal) else ""
