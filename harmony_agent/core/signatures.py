"""Signatures of a manifest, checked before anything else that it says. Pure.

The arithmetic is handed in. From an untrusted manifest only the claimed generation is used, in the
rejection. It can't fence, take over a lineage, remove, or block the right one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, Final

from harmony_agent.core.admission import NotAccepted
from harmony_agent.core.frozen import frozen
from scores.canonical import canonical
from scores.manifest import FieldError
from scores.signatures import (
    DOMAIN,
    FIELD,
    MAX_SIGNATURES,
    SIGNATURE_BYTES,
    is_key_id,
    signed_bytes,
    strict_base64,
)

Valid = Callable[[bytes, bytes, bytes], bool]
"""Verify that a key (32 bytes) made a signature (64 bytes) of a message."""
_ALTERED: Final = "a key that this device trusts didn't sign this: it was altered, or signed for another device or deployment"


def _never(_key: bytes, _message: bytes, _signature: bytes) -> bool:
    return False


@frozen()
class Trust:
    """The device's keys, by id. Verifies only if there are keys or `require` is set."""

    require: bool = False
    keys: Mapping[str, bytes] = field(default_factory=dict)
    valid: Valid = _never

    def verify(
        self,
        value: Any,
        generation: int | None = None,
        data: bytes | None = None,
        tag: bytes = DOMAIN,
    ) -> NotAccepted | None:
        """Check the signatures of a manifest, given as a JSON value; with another `tag`, those of a
        request.

        Returns the refusal, or None if it is trusted. `generation` is the claimed one. `data` are
        the manifest's bytes, if they came just now.
        """
        if not (self.keys or self.require) or not isinstance(
            value, dict
        ):  # no object: the models say what it is
            return None
        found = value.get(FIELD)
        if not found:
            return self._unsigned(generation) if self.require else None
        signatures = _read(found)
        if signatures is None:
            return _invalid("its signatures can't be read", generation)
        ours = {
            self.keys[key]: signature for key, signature in signatures.items() if key in self.keys
        }
        if not ours:
            return self._strange(signatures, generation) if self.require else None
        if not self._signed(value, ours, tag):
            return _invalid(_ALTERED, generation)
        return (
            _respelt(generation)
            if self.require and data is not None and canonical(value) != data
            else None
        )

    def _signed(self, value: Mapping[str, Any], ours: Mapping[bytes, bytes], tag: bytes) -> bool:
        """Tell if one of our keys made the signature that bears its name: anybody can put a wrong
        one beside it.
        """
        try:
            message = signed_bytes(value, tag)
        except (
            ValueError
        ):  # half of a surrogate pair has no canonical bytes: nobody can have signed it
            return False
        return any(self.valid(key, message, signature) for key, signature in ours.items())

    def _unsigned(self, generation: int | None) -> NotAccepted:
        return _keep(
            FieldError(FIELD, "SignatureMissing"),
            "it has no signature, and this device believes only what is signed: write it where the signing keys are",
            generation,
        )

    def _strange(self, signatures: Mapping[str, bytes], generation: int | None) -> NotAccepted:
        return _keep(
            FieldError(FIELD, "SignatureUnknownKey"),
            f"it is signed by {' '.join(sorted(signatures))}, and this device trusts {' '.join(sorted(self.keys))}",
            generation,
        )


def _invalid(why: str, generation: int | None) -> NotAccepted:
    return _keep(FieldError(FIELD, "SignatureInvalid"), why, generation)


def _respelt(generation: int | None) -> NotAccepted:
    """Refuse a spelling that the control plane never writes."""
    why = "its bytes aren't canonical: somebody wrote it again in another spelling; apply it again"
    return _keep(FieldError("", "NotCanonical"), why, generation)


def _keep(error: FieldError, message: str, generation: int | None) -> NotAccepted:
    return NotAccepted("Rejected", error.code, message, (error,), generation)


def _read(found: Any) -> dict[str, bytes] | None:
    """key id -> signature; None where there is anything else. The bound on their number bounds the
    work as well.
    """
    if not isinstance(found, list) or len(found) > MAX_SIGNATURES:
        return None
    read: dict[str, bytes] = {}
    for one in found:
        key, text = (
            (one.get("key"), one.get("signature")) if isinstance(one, dict) else (None, None)
        )
        signature = strict_base64(text, SIGNATURE_BYTES) if isinstance(text, str) else None
        if not isinstance(key, str) or not is_key_id(key) or key in read or signature is None:
            return None
        read[key] = signature
    return read
