"""Verify signatures."""

from __future__ import annotations

from typing import Protocol


class Verifier(Protocol):
    """Ed25519."""

    def valid(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether `key` made `signature` of `message`.

        Whatever the bytes are, the answer is yes or no.
        """
        ...
