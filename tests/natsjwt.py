"""Operators, accounts and users of a nats-server in JWT mode, and their .creds files, for tests.

Makes new keys each time; nothing is kept.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from harmony_fleet.authority.claims import (
    ACCOUNT,
    NO_LIMIT,
    OPERATOR,
    STORAGE,
    USER,
    Identity,
    credentials,
)


@dataclass(frozen=True, slots=True)
class JwtAuthority:
    """An operator with one account that has JetStream, and a system account."""

    operator: Identity
    account: Identity
    config: str

    @classmethod
    def make(cls) -> JwtAuthority:
        """A new one; `config` is for `NatsServer`."""
        operator, account, system = (
            Identity.make(OPERATOR),
            Identity.make(ACCOUNT),
            Identity.make(ACCOUNT),
        )
        limits, now = {"type": "account", "limits": NO_LIMIT | STORAGE}, int(time.time())
        lines = [
            f"operator: {operator.sign(operator.public, 'operator', {'type': 'operator'}, now)}",
            f"system_account: {system.public}",
            "resolver: MEMORY",
            "resolver_preload: {",
            f"  {account.public}: {operator.sign(account.public, 'fleet', limits, now)}",
            f"  {system.public}: {operator.sign(system.public, 'system', {'type': 'account', 'limits': {}}, now)}",
            "}",
        ]
        return cls(operator, account, "\n".join(lines))

    def creds(
        self, path: Path, publish: list[str] | None = None, subscribe: list[str] | None = None
    ) -> Path:
        """Write a user's .creds file; None allows all subjects."""
        user = Identity.make(USER)
        allowed = {
            "pub": {} if publish is None else {"allow": publish},
            "sub": {} if subscribe is None else {"allow": subscribe},
        }
        claims = {"type": "user", "subs": -1, "data": -1, "payload": -1, **allowed}
        path.write_text(
            credentials(self.account.sign(user.public, path.stem, claims, int(time.time())), user)
        )
        return path
