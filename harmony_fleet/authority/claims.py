"""NATS JWTs: an identity (an Ed25519 nkey), and what it signs. Pure but for the randomness of a new
key.

There is no kept library for NATS JWTs in Python; the signature itself is `nkeys`' (PyNaCl). The
form is version 2 of the NATS project's claims.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from typing import Any, Final

import nkeys

OPERATOR: Final[int] = nkeys.PREFIX_BYTE_OPERATOR
ACCOUNT: Final[int] = nkeys.PREFIX_BYTE_ACCOUNT
USER: Final[int] = nkeys.PREFIX_BYTE_USER

NO_LIMIT: Final = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    "wildcards": True,
}
STORAGE: Final = dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1)
"""Limits of an account that has JetStream: the server's own."""


class Identity:
    """A key pair of an operator, account or user. Its seed is a secret; its public key is its
    name.
    """

    def __init__(self, seed: bytes) -> None:
        """Raises the error of nkeys if `seed` is invalid."""
        self.seed = seed
        self._pair = nkeys.from_seed(bytearray(seed))  # type: ignore[no-untyped-call]
        self.public: str = self._pair.public_key.decode()

    @classmethod
    def make(cls, kind: int) -> Identity:
        """A new one, of the system's randomness."""
        return cls(nkeys.encode_seed(os.urandom(32), kind))  # type: ignore[no-untyped-call]

    def sign(self, subject: str, name: str, claims: dict[str, Any], now: int) -> str:
        """A JWT on `subject`, issued by this identity at `now` (seconds of the epoch)."""
        body: dict[str, Any] = {"iat": now, "iss": self.public, "name": name, "sub": subject}
        body["nats"] = claims | {"version": 2}
        body["jti"] = base64.b32encode(hashlib.sha256(_json(body)).digest()).decode().rstrip("=")
        text = ".".join(
            _encoded(_json(part)) for part in ({"typ": "JWT", "alg": "ed25519-nkey"}, body)
        )
        return f"{text}.{_encoded(self._pair.sign(text.encode()))}"

    def signed(self, data: bytes) -> str:
        """The signature of `data`, as Base64."""
        return base64.b64encode(self._pair.sign(data)).decode("ascii")

    def genuine(self, data: bytes, signature: str) -> bool:
        """Return whether this identity signed `data` so."""
        try:
            return bool(self._pair.verify(data, base64.b64decode(signature, validate=True)))
        except Exception:  # the library's many errors, and Base64's
            return False


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def credentials(token: str, user: Identity) -> str:
    """The text of a .creds file."""
    return (
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
    )
