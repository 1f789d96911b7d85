"""Secrets: how a Score names one, and the form in which a sealed one lies in NATS.

Text and bytes only: nothing here seals, opens, signs or verifies.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    Field,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from scores.base import Model
from scores.canonical import canonical
from scores.names import MAX_GENERATION, DeviceName, matches, no_nul, unicode_text
from scores.signatures import MAX_SIGNATURES, KeyId, Signature, strict_base64

DOMAIN: Final = b"harmony/v1/secret\n"
"""The tag of what is signed: a signature of a manifest never passes for a secret's."""
_PROOF: Final = b"\xff\xfeharmony/v1/device-key\n"
"""The tag of a device's own key. It is no UTF-8: a device signs whatever text a NATS server greets
it with, and no such text begins so.
"""
_KEY: Final = "x25519:"
KEY_BYTES: Final = 32
MAX_VALUE: Final = 64 * 1024
"""Bytes of one value."""
MAX_SEALED: Final = 256 * 1024
"""Bytes of an entry in NATS."""
_BLOCK: Final = 256
"""What is sealed has a multiple of so many bytes: its length tells little of the value's."""

SecretName = Annotated[
    str,
    StringConstraints(max_length=63),
    matches(
        r"[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?",
        "must be 1 to 63 of A-Z a-z 0-9 _ and -, with a letter or digit at its ends",
        "InvalidName",
    ),
]


class Secret(Model):
    """A value that its author gave by `harmony secret set`. A manifest has the name alone.

    Example: ``Secret("mqtt-password")``
    """

    secret: SecretName = Field(description="The secret's name.", examples=["mqtt-password"])

    def __init__(self, *name: str, **fields: Any) -> None:
        """Take the name alone, or fields as JSON has them."""
        super().__init__(**dict(zip(("secret",), name, strict=True)) if name else {}, **fields)


def _text_or_secret(value: object, _handler: ValidatorFunctionWrapHandler) -> str | Secret:
    if isinstance(value, str):
        return no_nul(unicode_text(value))
    if isinstance(value, Secret):
        return value
    if isinstance(value, Mapping) and "secret" in value:
        return Secret.model_validate(value)
    raise PydanticCustomError("WrongType", "must be text, or {secret: NAME}")


TextOrSecret = Annotated[str | Secret, WrapValidator(_text_or_secret)]


def names_in(values: Sequence[str | Secret]) -> tuple[str, ...]:
    """The secrets among `values`, each once."""
    return tuple(dict.fromkeys(one.secret for one in values if isinstance(one, Secret)))


class SealedSecret(Model):
    """A value of the bucket ``secrets``: one secret of one device, open to that device alone."""

    api: Literal["harmony/v1"] = "harmony/v1"
    device: DeviceName
    name: SecretName
    version: Annotated[int, Field(ge=1, le=MAX_GENERATION)]
    key: KeyId | None = None
    """the device's key that it is sealed for"""
    sealed: Annotated[str, Field(min_length=1, max_length=MAX_SEALED)] | None = None
    """in base64"""
    removed: bool = False
    signatures: Annotated[Sequence[Signature], Field(max_length=MAX_SIGNATURES)] = ()

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        whole = self.key is not None and self.sealed is not None
        if self.removed == whole or (self.key is None) != (self.sealed is None):
            raise PydanticCustomError("Invalid", "is sealed for a key, or removed")
        return self

    def wire(self) -> dict[str, Any]:
        """The JSON value. What says nothing is left out."""
        value = self.model_dump(mode="json", exclude_none=True, exclude={"signatures"})
        if not self.removed:
            value.pop("removed")
        signatures = [one.wire() for one in self.signatures]
        return value | ({"signatures": signatures} if signatures else {})

    def box(self) -> bytes:
        """The sealed bytes. Raises ValueError."""
        try:
            return base64.b64decode(self.sealed or "", validate=True)
        except binascii.Error:
            raise ValueError("no base64") from None


def pack(device: str, name: str, version: int, value: bytes) -> bytes:
    """Pack the value with its place, so that no box passes for another one."""
    told = {"device": device, "name": name, "version": version}
    text = canonical({**told, "value": base64.b64encode(value).decode("ascii")})
    return text + b" " * (-len(text) % _BLOCK)


def unpack(data: bytes, device: str, name: str, version: int) -> bytes:
    """The value. Raises ValueError where it is for something else."""
    found = json.loads(data)
    told = {"device": device, "name": name, "version": version}
    value = found.get("value") if isinstance(found, dict) else None
    if not isinstance(value, str) or found != {**told, "value": value}:
        raise ValueError("it is for something else")
    return base64.b64decode(value, validate=True)


def spell_key(public: bytes) -> str:
    """``x25519:<base64>``: as a device tells its key."""
    return _KEY + base64.b64encode(public).decode("ascii")


def read_key(text: str) -> bytes:
    """The 32 bytes of a key that is spelt so. Raises ValueError."""
    public = strict_base64(text.removeprefix(_KEY), KEY_BYTES) if text.startswith(_KEY) else None
    if public is None:
        raise ValueError(f"must be {_KEY} and the base64 of {KEY_BYTES} bytes")
    return public


def key_id(public: bytes) -> str:
    """Name of a device's key, for people to compare: 16 hex digits."""
    return hashlib.sha256(public).hexdigest()[:16]


def proof(device: str, public: bytes) -> bytes:
    """Bytes that a device signs by its NATS identity, to say that this key is its own."""
    return _PROOF + device.encode() + b"\n" + public
