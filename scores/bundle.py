"""The bundle by which a device joins a fleet: written by `harmony device enroll`, read by
`harmony-agent join`.

It holds the device's credentials, so whoever has it is the device. No error about a bundle repeats
what stands in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from scores.base import KINDS, Model
from scores.canonical import NotCanonical, read
from scores.file import Path
from scores.manifest import FieldError, InvalidManifest, validate
from scores.names import DeviceName, Text, Time, matches
from scores.signatures import read_key

MAX_BYTES: Final = 256 * 1024
_SERVER: Final = re.compile(r"(tls|nats)://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")
_JWT: Final = r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"
_CREDENTIALS: Final = re.compile(
    rf"-----BEGIN NATS USER JWT-----\n{_JWT}\n------END NATS USER JWT------\n\n"
    r"-----BEGIN USER NKEY SEED-----\nSU[A-Z2-7]{56}\n------END USER NKEY SEED------\n"
)
_CERTIFICATES: Final = re.compile(
    r"(-----BEGIN CERTIFICATE-----\n([A-Za-z0-9+/=]{1,76}\n)+-----END CERTIFICATE-----\n)+"
)
Kind = Literal[
    "File", "SystemdUnit", "Container", "SystemUpgrade", "Session", "Volume", "Network", "Package"
]


class InvalidBundle(ValueError):
    """The bytes are no bundle. `errors` name fields; the message holds none of their values."""

    def __init__(self, code: str, errors: Sequence[FieldError], message: str) -> None:
        super().__init__(message)
        self.code = code
        self.errors = tuple(errors)


def _trusted(value: str) -> str:
    try:
        read_key(value)
    except ValueError:
        raise PydanticCustomError(
            "InvalidKey", "must be ed25519: and the base64 of 32 bytes"
        ) from None
    return value


class Bundle(Model):
    """Device, its NATS servers, and its settings."""

    api: Literal["harmony/v1"]
    type: Literal["DeviceBundle"]
    device: DeviceName
    issued: Time
    servers: Annotated[
        Sequence[
            Annotated[
                str,
                matches(_SERVER, "must be tls://host:port or nats://host:port", "InvalidServer"),
            ]
        ],
        Field(min_length=1, max_length=16),
    ]
    tls_ca: (
        Annotated[str, matches(_CERTIFICATES, "must be certificates as PEM", "InvalidCertificate")]
        | None
    ) = None
    credentials: Annotated[
        str, matches(_CREDENTIALS, "must be a NATS .creds file's text", "InvalidCredentials")
    ] = Field(repr=False)
    trusted_keys: Annotated[
        Sequence[Annotated[str, AfterValidator(_trusted)]], Field(max_length=16)
    ] = ()
    labels: Annotated[Mapping[Text, Text], Field(max_length=64)] = {}
    profile: Literal["user", "system"] = "user"
    kinds: Annotated[Sequence[Kind], Field(min_length=1)] = KINDS
    roots: Annotated[Sequence[Path], Field(max_length=64)] = ("/srv",)
    units: Annotated[Sequence[Text], Field(max_length=256)] = ("*",)


def decode(data: bytes) -> Bundle:
    """Read a bundle's file. Raises InvalidBundle."""
    try:
        value = read(data, MAX_BYTES)
    except NotCanonical as error:
        raise InvalidBundle(error.code, (FieldError("", error.code),), str(error)) from None
    try:
        return validate(Bundle, value)
    except InvalidManifest as error:
        raise InvalidBundle(
            error.code, error.errors, str(error).replace("the manifest", "the bundle")
        ) from None
