"""Package: a Debian package that a manifest needs. The device installs it, and no Score does."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from scores.base import Score, fault
from scores.names import Text

PATTERN = r"^[a-z0-9][a-z0-9+.-]+$"
PackageName = Annotated[Text, Field(pattern=PATTERN, max_length=128)]
PackageVersion = Annotated[
    Text, Field(pattern=r"^([0-9]{1,9}:)?[0-9][A-Za-z0-9+.~-]*$", max_length=128)
]


class Package(Score):
    """A package of Debian's that must be installed. It is looked for, and never installed by this.

    Example: ``Package(name="gpiod")``
    """

    kind: Literal["Package"] = Field(default="Package", description="Package, as the class says.")
    package: PackageName | None = Field(
        default=None,
        description="The package's name. None: the Score's own.",
        examples=["libstdc++6"],
    )
    version: PackageVersion | None = Field(
        default=None,
        description="The least version, as Debian compares them. None: any.",
        examples=["1.6.3-1"],
    )

    @property
    def wanted(self) -> str:
        """The package's name."""
        return self.name if self.package is None else self.package

    @model_validator(mode="after")
    def _fits(self) -> Package:
        if self.adopt:
            text = "a package is only looked for: there is nothing to take over"
            raise fault(("adopt",), "AdoptNotForPackage", text)
        if self.package is None and not _is_name(self.name):
            text = "is no package's name: write that into package"
            raise fault(("name",), "InvalidPackageName", text)
        return self


def _is_name(name: str) -> bool:
    return re.match(PATTERN, name) is not None
