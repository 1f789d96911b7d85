"""Signatures of manifests: the signed bytes, the spelling and names of keys, the form on the wire.

Text and bytes only: nothing here signs or verifies. The signed bytes are a tag and the manifest's
canonical bytes without its `signatures`. The tag keeps a signature that was made for anything else
from passing for a manifest's.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from scores.base import Model
from scores.canonical import canonical, digest

DOMAIN: Final = b"harmony/v1/manifest\n"
COMMAND: Final = b"harmony/v1/command\n"
"""The tag of a request to a device: see `scores.pause`."""
FIELD: Final = "signatures"
PREFIX: Final = "ed25519:"
KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
MAX_SIGNATURES: Final = 4
"""Active keys at once: one, two while it is rotated, and room for a second authority."""

_ID: Final = re.compile(r"[0-9a-f]{16}")


def strict_base64(text: str, length: int) -> bytes | None:
    """Decode the `length` bytes that `text` spells. None for another length or another spelling."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if len(data) == length and base64.b64encode(data).decode("ascii") == text else None


def is_key_id(text: str) -> bool:
    """Return whether it has the form of a key's id."""
    return _ID.fullmatch(text) is not None


def _key_id(value: str) -> str:
    if not is_key_id(value):
        raise PydanticCustomError("InvalidKeyId", "must be 16 lower-case hex digits")
    return value


def _signature(value: str) -> str:
    if strict_base64(value, SIGNATURE_BYTES) is None:
        raise PydanticCustomError("InvalidSignature", "must be the base64 of 64 bytes")
    return value


KeyId = Annotated[str, AfterValidator(_key_id)]


class Signature(Model):
    """One key's signature of a manifest. The control plane makes them anew at each write."""

    key: KeyId = Field(
        description="The key's id: the first 16 hex digits of the SHA-256 of its 32 bytes.",
        examples=["0123456789abcdef"],
    )
    signature: Annotated[str, AfterValidator(_signature)] = Field(
        description="Ed25519, in base64, over the tag harmony/v1/manifest, a newline, and the canonical JSON without "
        "signatures.",
        examples=["A" * 86 + "=="],
    )


def key_id(public: bytes) -> str:
    """Name of a key in a signature."""
    return hashlib.sha256(public).hexdigest()[:16]


def spell_key(public: bytes) -> str:
    """``ed25519:<base64>``: as a device's configuration and an enrolment bundle have it."""
    return PREFIX + base64.b64encode(public).decode("ascii")


def read_key(text: str) -> bytes:
    """The 32 bytes of a key that is spelt so. Raises ValueError."""
    public = (
        strict_base64(text.removeprefix(PREFIX), KEY_BYTES) if text.startswith(PREFIX) else None
    )
    if public is None:
        raise ValueError(
            f"must be {PREFIX} and the base64 of {KEY_BYTES} bytes, as harmony fleet key list shows it"
        )
    return public


def signed_bytes(value: Mapping[str, Any], tag: bytes = DOMAIN) -> bytes:
    """Bytes that the signatures of a manifest, as a JSON value, are made over; with another `tag`,
    those of something else.

    Raises ValueError if it has no canonical bytes.
    """
    return tag + _content(value)


def content_digest(value: Mapping[str, Any]) -> str:
    """The identity of a generation: the digest of its canonical content, whoever signed it and
    however it is spelt.
    """
    return digest(_content(value))


def _content(value: Mapping[str, Any]) -> bytes:
    return canonical({name: item for name, item in value.items() if name != FIELD})
