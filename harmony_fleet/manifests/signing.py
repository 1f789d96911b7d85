"""Sign manifests, and judge the signatures that stand. Pure.

A private half leaves this module in no form: only ids, public halves and signatures do. Ed25519
uses no randomness: the same manifest and key give the same bytes, whoever writes. All active keys
sign. So devices that trust the old key and devices that trust the new one accept the same bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from harmony_fleet.manifests.shared import message_of
from scores.manifest import WireManifest
from scores.signatures import (
    FIELD,
    Signature,
    signed_bytes,
    spell_key,
)

if TYPE_CHECKING:
    from nacl.secret import SecretBox
    from nacl.signing import SigningKey

_COPIES: Final = b"harmony/v1/copy"
"""Purpose of the boxes, at most 16 bytes."""
_NOTES: Final = b"harmony/v1/roster\n"
"""In front of what is signed as a note: no manifest begins so."""
_RECORDS: Final = b"harmony/v1/record\n"
"""The same for what is kept beside records."""
_UNSIGNED: Final = "unsigned"
State = Literal["active", "retired"]


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the home. Its private half is in no representation."""

    id: str
    public: bytes
    state: State
    _private: SigningKey = field(repr=False, compare=False)

    @property
    def spelt(self) -> str:
        """The public half, as devices trust it."""
        return spell_key(self.public)

    def signature(self, message: bytes) -> Signature:
        """This key's signature of `message`."""
        return Signature(key=self.id, signature=self.signed(message))

    def signed(self, message: bytes) -> str:
        """The same as it is spelt."""
        return base64.b64encode(self._private.sign(message).signature).decode("ascii")

    def seal(self, data: bytes) -> bytes:
        """`data` closed to all who don't have this key, and by its making known to come from who
        has.
        """
        return bytes(self._box().encrypt(data))

    def unseal(self, data: bytes) -> bytes | None:
        """The content of what `seal` made; None where it isn't."""
        from nacl.exceptions import CryptoError  # noqa: PLC0415 - only where there are keys

        try:
            return bytes(self._box().decrypt(data))
        except (CryptoError, ValueError, TypeError):
            return None

    def _box(self) -> SecretBox:
        """Of a key made from the private half for this alone, so that no signature is ever of use
        here.
        """
        from nacl.encoding import RawEncoder  # noqa: PLC0415 - only where there are keys
        from nacl.hash import blake2b  # noqa: PLC0415
        from nacl.secret import SecretBox  # noqa: PLC0415

        secret_key = blake2b(b"", key=bytes(self._private), person=_COPIES, encoder=RawEncoder)
        return SecretBox(secret_key)


@dataclass(frozen=True, slots=True)
class Signing:
    """The active keys. Without a key, manifests stay as they are. Made anew for each look at the
    buckets.
    """

    keys: tuple[Key, ...] = ()
    old: tuple[Key, ...] = ()
    """those that sign no more"""
    _judged: dict[int, tuple[WireManifest, str]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """by identity: what was found of a manifest, kept with it so that no other has its identity"""
    _noted: dict[int, tuple[WireManifest, str, bool]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """the same for the note beside it"""

    @property
    def retired(self) -> frozenset[str]:
        """Ids of those that sign no more."""
        return frozenset(key.id for key in self.old)

    def sign(self, wire: WireManifest) -> WireManifest:
        """The manifest with a signature by each active key."""
        if not self.keys:
            return wire
        message = message_of(wire)
        return wire.model_copy(update={"signatures": [key.signature(message) for key in self.keys]})

    def note(self, wire: WireManifest) -> str:
        """The note by which a roster knows later that it wrote `wire`: one key's signature for that
        purpose, so that who can write to NATS can't give away what was applied by hand.
        """
        if not self.keys:
            return _UNSIGNED
        return f"{self.keys[0].id} {self.keys[0].signed(_NOTES + message_of(wire))}"

    def noted(self, wire: WireManifest, note: str) -> bool:
        """Return whether `note` is a roster's on `wire`, by any key of the home."""
        known = self._noted.get(id(wire))
        if known is None or known[1] != note:
            known = self._noted[id(wire)] = (wire, note, self._is_note(wire, note))
        return known[2]

    def _is_note(self, wire: WireManifest, note: str) -> bool:
        own = {key.id: key for key in (*self.keys, *self.old)}
        if not own:
            return note == _UNSIGNED
        name, _, signature = note.partition(" ")
        return name in own and own[name].signed(_NOTES + message_of(wire)) == signature

    def problem(self, wire: WireManifest) -> str:
        """Difference between the present signatures and those of now: a code and ids.

        Empty if there is none, or no key.
        """
        if not self.keys:
            return ""
        if id(wire) not in self._judged:
            self._judged[id(wire)] = (wire, self._problem(wire))
        return self._judged[id(wire)][1]

    def _problem(self, wire: WireManifest) -> str:
        there = {item.key: item.signature for item in wire.signatures or ()}
        lacking = [key.id for key in self.keys if key.id not in there]
        if lacking:
            return f"SignatureMissing {' '.join(lacking)}"
        message = message_of(wire)
        wrong = [key.id for key in self.keys if key.signed(message) != there[key.id]]
        if wrong:
            return f"SignatureInvalid {' '.join(wrong)}"
        return (
            f"SignatureUnknownKey {' '.join(sorted(there))}" if len(there) > len(self.keys) else ""
        )

    def vouch(self, message: bytes) -> str:
        """The home's word beside a record that it will read again; "" without a key."""
        return f"{self.keys[0].id} {self.keys[0].signed(_RECORDS + message)}" if self.keys else ""

    def vouched(self, message: bytes, word: str) -> bool:
        """Return whether `word` is this home's on `message`, by any of its keys; without keys
        everything is.
        """
        own = {key.id: key for key in (*self.keys, *self.old)}
        name, _, signature = word.partition(" ")
        return not own or (name in own and own[name].signed(_RECORDS + message) == signature)

    def signed_here(self, wire: WireManifest) -> bool:
        """Return whether a key of the home, perhaps one that signs no more, signed it; without keys
        everything is.
        """
        own = {key.id: key for key in (*self.keys, *self.old)}
        there = {item.key: item.signature for item in wire.signatures or ()}
        message = message_of(wire) if there else b""
        known = [name for name in there if name in own]
        return not own or any(own[name].signed(message) == there[name] for name in known)

    def forged(self, value: Any, trusted: Collection[str]) -> bool:
        """Return whether a device that believes only `trusted` keys can't have accepted it, because
        no such key signed it.

        Keys of other homes can't be checked here. Their signatures are taken for right.
        """
        own = {key.id: key for key in (*self.keys, *self.old)}
        found = value.get(FIELD) if isinstance(value, dict) else None
        entries = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
        told = [one for one in entries if one.get("key") in trusted]
        if any(one["key"] not in own for one in told):
            return False
        try:
            message = signed_bytes(value) if told else b""
        except ValueError:
            return True
        return not any(own[one["key"]].signed(message) == one.get("signature") for one in told)


UNSIGNED: Final = Signing()
