"""Operators, accounts and users of a nats-server in JWT mode, and their .creds files, for tests.

Makes new keys each time; nothing is kept.
"""

from __future__ import annotations

import base64
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nkeys

_NO_LIMIT = {
    **dict.fromkeys(("subs", "data", "payload", "imports", "exports", "conn", "leaf"), -1),
    **dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), -1),
    "wildcards": True,
}


class Identity:
    """An nkey of a kind: operator, account or user."""

    def __init__(self, prefix: int) -> None:
        self.seed: bytes = nkeys.encode_seed(os.urandom(32), prefix)  # type: ignore[no-untyped-call]
        self.pair = nkeys.from_seed(bytearray(self.seed))  # type: ignore[no-untyped-call]
        self.public = self.pair.public_key.decode()

    def sign(self, subject: str, name: str, claims: dict[str, Any]) -> str:
        """A JWT on `subject` that this identity issues."""
        body = {"jti": name, "iat": int(time.time()), "iss": self.public, "name": name, "sub": subject}
        parts = [{"typ": "JWT", "alg": "ed25519-nkey"}, body | {"nats": claims | {"version": 2}}]
        text = ".".join(_encoded(json.dumps(part, separators=(",", ":")).encode()) for part in parts)
        return f"{text}.{_encoded(self.pair.sign(text.encode()))}"


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True, slots=True)
class JwtAuthority:
    """An operator with one account that has JetStream, and a system account."""

    operator: Identity
    account: Identity
    config: str

    @classmethod
    def make(cls) -> JwtAuthority:
        """A new one; `config` is for `NatsServer`."""
        operator = Identity(nkeys.PREFIX_BYTE_OPERATOR)
        account, system = Identity(nkeys.PREFIX_BYTE_ACCOUNT), Identity(nkeys.PREFIX_BYTE_ACCOUNT)
        limits = {"type": "account", "limits": _NO_LIMIT}
        lines = [
            f"operator: {operator.sign(operator.public, 'operator', {'type': 'operator'})}",
            f"system_account: {system.public}",
            "resolver: MEMORY",
            "resolver_preload: {",
            f"  {account.public}: {operator.sign(account.public, 'fleet', limits)}",
            f"  {system.public}: {operator.sign(system.public, 'system', {'type': 'account', 'limits': {}})}",
            "}",
        ]
        return cls(operator, account, "\n".join(lines))

    def creds(self, path: Path, publish: list[str] | None = None, subscribe: list[str] | None = None) -> Path:
        """Write a user's .creds file; None allows all subjects."""
        user = Identity(nkeys.PREFIX_BYTE_USER)
        allowed = {
            "pub": {} if publish is None else {"allow": publish},
            "sub": {} if subscribe is None else {"allow": subscribe},
        }
        claims = {"type": "user", "subs": -1, "data": -1, "payload": -1, **allowed}
        token = self.account.sign(user.public, path.stem, claims)
        path.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        return path
