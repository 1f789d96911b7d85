"""Ed25519 by libsodium (PyNaCl): verifies, signs nothing. Imported only where keys are
configured.
"""

from __future__ import annotations

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey


class Ed25519:
    """`topology.trust.Verifier`."""

    def valid(self, key: bytes, message: bytes, signature: bytes) -> bool:
        """Return whether `key` made `signature` of `message`."""
        try:
            VerifyKey(key).verify(message, signature)
        except (CryptoError, ValueError, TypeError):  # of a wrong signature; of wrong lengths
            return False
        return True
