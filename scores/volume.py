"""Volume: a named volume of podman, whose data outlives what uses it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from scores.base import Score, fault
from scores.container_values import check_engine_name, own_labels
from scores.names import Text

Driver = Annotated[Text, Field(pattern=r"^[a-z][a-z0-9-]*$", max_length=64)]


class Volume(Score):
    """A named volume. Containers of its manifest that mount it wait for it by themselves.

    Example: ``Volume(name="web-data")``
    """

    kind: Literal["Volume"] = Field(default="Volume", description="Volume, as the class says.")
    driver: Driver = Field(
        default="local",
        description="Podman's driver for it. What is there can't change it.",
        examples=["local"],
    )
    labels: Annotated[Mapping[Text, Text], AfterValidator(own_labels)] = Field(
        default_factory=dict,
        description="Podman's labels: value by name. What is there can't change them.",
        examples=[{"team": "web"}],
    )
    on_remove: Literal["delete", "orphan", "delete-data"] = Field(  # type: ignore[assignment]
        default="delete",
        description="When this resource leaves the manifest: delete and orphan leave the volume "
        "with its data on the device; delete-data removes it, after its containers. "
        "One that was there before the Score stays.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Volume:
        check_engine_name(self.name)
        if self.adopt:
            text = "a volume can't be put back: one that is as wanted is taken as it is"
            raise fault(("adopt",), "AdoptNotForVolume", text)
        return self
