"""Signing keys for tests: made from a number, so that the same test has the same keys; and
manifests signed by them.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from nacl.signing import SigningKey

from harmony_agent.adapters import ed25519
from harmony_agent.core.signatures import Trust
from scores.signatures import DOMAIN, key_id, signed_bytes, spell_key


class TestKey:
    """One key: what devices trust, and what signs."""

    __test__ = False

    def __init__(self, number: int) -> None:
        self._private = SigningKey(hashlib.sha256(b"a key of the tests %d" % number).digest())
        self.public = bytes(self._private.verify_key)
        self.id = key_id(self.public)
        self.spelt = spell_key(self.public)
        self.secret = base64.b64encode(bytes(self._private)).decode("ascii")

    def entry(self, value: Mapping[str, Any], tag: bytes = DOMAIN) -> dict[str, str]:
        """This key's signature of a manifest, as it stands on the wire; with another `tag`, of a
        request.
        """
        made = self._private.sign(signed_bytes(value, tag)).signature
        return {"key": self.id, "signature": base64.b64encode(made).decode("ascii")}


ROSTER, NEXT, FOREIGN = TestKey(1), TestKey(2), TestKey(3)


def signed(value: Mapping[str, Any], *keys: TestKey) -> dict[str, Any]:
    """The manifest with these keys' signatures, of the roster's where none is named."""
    return {**value, "signatures": [key.entry(value) for key in keys or (ROSTER,)]}


def trust(*keys: TestKey, require: bool = True) -> Trust:
    """A device that trusts these keys, the roster's where none is named."""
    return Trust(require, {key.id: key.public for key in keys or (ROSTER,)}, ed25519.valid)
