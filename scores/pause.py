"""The requests by which an operator has a device keep what runs and change nothing, for a while.

A request names a word that the device gave just now, so that none can be sent a second time. It is
signed as manifests are, over other bytes: neither passes for the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from scores.base import Model
from scores.names import DeploymentName, DeviceName
from scores.signatures import COMMAND, MAX_SIGNATURES, Signature, signed_bytes

DEVICE: Final = "*"
"""The scope of a pause of the whole device."""
MAX_SECONDS: Final = 7 * 86_400
NONCE: Final = r"[0-9a-f]{32}"
MAX_REQUEST: Final = 8 * 1024


class PauseRequest(Model):
    """The request of the verbs ``pause`` and ``resume``. Without a deployment it is about the whole
    device.
    """

    api: Literal["harmony/v1"] = "harmony/v1"
    verb: Literal["pause", "resume"]
    device: DeviceName
    deployment: DeploymentName | None = None
    seconds: Annotated[int, Field(ge=1, le=MAX_SECONDS)] | None = None
    nonce: Annotated[str, Field(pattern=f"^{NONCE}$")]
    signatures: Annotated[Sequence[Signature], Field(max_length=MAX_SIGNATURES)] = ()

    @model_validator(mode="after")
    def _of_its_verb(self) -> Self:
        if (self.seconds is None) == (self.verb == "pause"):
            raise PydanticCustomError("OutOfRange", "pause takes seconds, resume doesn't")
        return self

    def wire(self) -> dict[str, Any]:
        """The JSON value. What says nothing is left out."""
        return self.model_dump(mode="json", exclude_none=True) | {
            "signatures": [one.wire() for one in self.signatures]
        }

    def message(self) -> bytes:
        """Bytes that its signatures are made over."""
        return signed_bytes(self.wire(), COMMAND)
