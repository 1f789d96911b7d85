"""Settings that a device was enrolled with: they are remembered, so that its next bundle has them
again. Holds no secret. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harmony_fleet.errors import InvalidInput
from scores.base import Model

FIELDS: Final = ("profile", "labels", "roots", "units", "kinds", "servers")


class Enrolled(Model):
    """Fields of a bundle. None: nobody said it, so it is as the device has it, or the default."""

    profile: str | None = None
    labels: Mapping[str, str] | None = None
    roots: Sequence[str] | None = None
    units: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    servers: Sequence[str] | None = None

    def said(self) -> dict[str, Any]:
        """The fields that somebody said, as a bundle has them."""
        return self.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True, slots=True)
class EnrollOptions:
    """Settings for a device besides its credentials, as they are asked for now.

    A field that is left out stays as it was enrolled. A label is set beside the others, and goes by
    `no_labels`; a list takes the place of the one before.
    """

    servers: Sequence[str] = ()
    labels: Mapping[str, str] | None = None
    roots: Sequence[str] | None = None
    units: Sequence[str] | None = None
    kinds: Sequence[str] | None = None
    profile: str | None = None
    no_labels: Sequence[str] = ()


def changed(device: str, before: Enrolled | None, asked: EnrollOptions) -> Enrolled | None:
    """The settings to remember from now on. None where nothing was, and nothing is asked for.

    Raises InvalidInput for a label to take away that isn't there.
    """
    known = before.said() if before is not None else {}
    asked_for = {name: getattr(asked, name) for name in FIELDS}
    given = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asked_for.items()
        if value not in (None, ())
    }
    labels = {**known.get("labels", {}), **(asked.labels or {})}
    for name in asked.no_labels:
        if name not in labels:
            raise InvalidInput(
                "NotFound",
                f"cannot take the label {name} away: {device} was enrolled without it",
                f"see: harmony device show {device}",
            )
        del labels[name]
    if "labels" in known or "labels" in given:
        given["labels"] = labels
    if before is None and not given:
        return None
    return Enrolled.model_validate(known | given)
