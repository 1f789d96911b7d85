"""Ed25519 by libsodium (PyNaCl): verifies, signs nothing. Imported only if keys are configured."""

from __future__ import annotations

from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey


def valid(key: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether `key` made `signature` of `message`. Any bytes have a yes or a no."""
    try:
        VerifyKey(key).verify(message, signature)
    except (CryptoError, ValueError, TypeError):  # of a wrong signature; of wrong lengths
        return False
    return True
